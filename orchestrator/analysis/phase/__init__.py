"""Phase diagrams: the probability to end stuck over the plane of two parameters."""
