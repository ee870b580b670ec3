"""Compiles the step, or the loss and its gradient, of a shape of trainings to machine code."""
