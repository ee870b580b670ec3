"""The encoder of the note on cyclic words, level by level: no mask, no norm.

Axes of its letters: n tokens, d channels. X (n, d), s (n, n), Q, K, V, W (d, d), C (n, 1) of ones, b and c (1, d).
"""

from typing import Literal

from attnsweep.reproduction.cyclic.expression import (
    Expression,
    Letter,
    Rectified,
    Softmax,
    Sum,
    product,
    transposed,
)

Attention = Literal["linear", "softmax", "encoder"]


def level(below: Expression, number: int, attention: Attention, *, has_skip: bool = False) -> Expression:
    """One level of the encoder, whose weights carry its number: `Q1`, `K1`, ...

    Args:
        below: What the level reads.
        number: Of the level, from 1.
        attention: `linear`: X Q K' X' X V. `softmax`: a(X Q K' X') X V. `encoder`: with the scale s and the
            feed-forward part, (a(s X Q K' X') X V + C b)_m W + C c.
        has_skip: Whether to add what the level reads to what it gives.
    """
    Q, K, V, W, b, c = (Letter(f"{name}{number}") for name in "QKVWbc")
    s, C = Letter("s"), Letter("C")
    logits = product(below, Q, transposed(K), transposed(below))
    match attention:
        case "linear":
            output = product(logits, below, V)
        case "softmax":
            output = product(Softmax(logits), below, V)
        case "encoder":
            read = product(Softmax(product(s, logits)), below, V)
            hidden = Sum((read, product(C, b)))
            output = Sum((product(Rectified(hidden), W), product(C, c)))
    return Sum((below, output)) if has_skip else output
