"""Figures of a sweep, and how all figures look."""
