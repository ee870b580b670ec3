"""Data of the report's interactive section *Explore*: all trials as compact columns, and some trainings in full."""
