"""Prints what does not print itself: lists of sweeps, status, comparisons and explanations."""
