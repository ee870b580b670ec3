"""Shin & Matzinger 2025, on attention models of category pairs: the paper's solutions with hand-set weights, its
equations and figures.
"""
