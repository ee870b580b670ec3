"""Shin & Matzinger 2025, on attention models of category pairs: hand-programmed solutions, equations, figures."""
