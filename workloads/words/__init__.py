"""Writes the gradients of a training as sums of readable matrix products ("words"), one for each place where the loss
reads a weight.

See docs/why.md.
"""
