"""Compiles the training step, or the loss and its gradient, of trainings of one shape to machine code."""
