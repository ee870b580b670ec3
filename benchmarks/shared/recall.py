"""Associative recall with a user's own model."""

from decoder import Decoder, data  # type: ignore[import-not-found]

import attnsweep as at


def model(
    n_pairs: int = 8, n_heads: int = 1, dropout: float = at.parameter(0.0, "of all parts", low=0.0, static=True)
) -> Decoder:
    return Decoder(16, 2 * n_pairs + 1, 32, n_heads, dropout, is_last=True)


recall = at.problem("recall", model=model, data=data, loss="cross_entropy", solved=1e-9, probe_steps=20)
