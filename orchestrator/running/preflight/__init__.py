"""What is looked at before the first training: one sample of the space, for refusals, a warning and the engine."""
