"""Conti 2024, a thesis on the structure of attention heads: its tables 6 and 7, and its figures 1 and 2."""
