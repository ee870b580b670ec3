"""Checks before the first training: a sample of the space shows mistakes, calls for warnings, and chooses the
engine."""
