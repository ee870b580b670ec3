"""Fused training: many small trainings as one batched program, each as if it were alone."""
