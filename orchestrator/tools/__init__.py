"""Commands other than running sweeps."""
