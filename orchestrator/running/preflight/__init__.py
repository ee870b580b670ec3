"""Checks before the first training: a sample of the space shows mistakes, leads to warnings, and chooses the engine."""
