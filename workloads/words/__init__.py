"""Writes the gradients of a training as sums of readable words, one per place where the loss reads a weight.

See docs/why.md.
"""
