"""Compiles training steps, or only loss and gradient, to machine code. One program serves all trainings with equal
static parameters (shapes and graph of the model)."""
