"""Gradients of a training as sums of readable words, one for each way in which a weight enters (docs/why.md)."""
