"""Compares problems from the literature (workloads/field) with published numbers, in one file for each problem."""
