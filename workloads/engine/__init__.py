"""Fused training: one batched program trains many small models, and each result is as if it were trained alone."""
