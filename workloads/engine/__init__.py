"""Trains many small models in one batched program. Each result is as if its model were trained alone."""
