"""Writes the gradients of a training as sums of "words": readable matrix products, one for each place where the loss
reads a weight.

See docs/why.md.
"""
