"""Boue 2025, "Deep learning for pedestrians: backpropagation in Transformers": counts and formulas; no training."""
