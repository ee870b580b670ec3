"""Prints `attnsweep list` and `attnsweep status`."""
