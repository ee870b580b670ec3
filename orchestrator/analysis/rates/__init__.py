"""Rates over the trainings of a sweep, with 95% intervals: overall, by parameter, by outcome."""
