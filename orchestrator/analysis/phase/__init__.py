"""Phase diagrams: the probability of an ending over the plane of two parameters."""
