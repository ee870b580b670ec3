"""Comparisons of the field's problems with published numbers: one file for each problem, with the problem's name."""
