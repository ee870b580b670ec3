"""Phase diagrams: the probability that a training ends stuck, or with one outcome, as a function of two parameters."""
