"""What is one training? Problems, the engine that trains many of them at once, and the labels of their ends."""
