"""Shin & Matzinger 2025."""
