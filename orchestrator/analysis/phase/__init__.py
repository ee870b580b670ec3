"""Phase diagrams: the probability of an ending (stuck, or one outcome) over the plane of two parameters."""
