"""Prints the results of commands that do not print themselves: lists of sweeps, status, comparisons and
explanations."""
