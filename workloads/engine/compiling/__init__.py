"""Compiles to machine code the training step, or the loss and its gradient, of trainings with equal static
parameters."""
