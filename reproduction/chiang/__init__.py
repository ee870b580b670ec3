"""Chiang & Cholak 2022."""
