"""Figures and tables of the literature, ours beside the published values."""
