"""Shin & Matzinger 2025, on attention models of category pairs: the paper's hand-programmed solutions, equations and
figures.
"""
