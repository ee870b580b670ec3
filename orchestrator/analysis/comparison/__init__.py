"""The comparison of two sweeps: differences in their rates, with intervals and tests."""
