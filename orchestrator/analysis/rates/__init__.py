"""Shares of trainings that end in some way, with 95% intervals: over all trials, by parameter, and by outcome."""
