"""Random choices of sentence i as a function of (seed, i): a row of outcomes, with one column per place.

A choice that a sentence does not make therefore does not shift the others, and a longer corpus begins with the shorter
one.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from attnsweep.workloads.engine.streams import Streams

SENTENCES_PER_DRAW = 1024
_STREAM = "grammar"


class Laws:
    """The numbered places of a grammar, with the probabilities of their outcomes.

    Args:
        probabilities: For each place, the probabilities of its outcomes; they sum to 1.
    """

    def __init__(self, probabilities: Mapping[str, tuple[float, ...]]) -> None:
        self.columns = {place: i for i, place in enumerate(probabilities)}
        self.nats = [[-math.log(p) for p in law] for law in probabilities.values()]
        self._thresholds = [np.cumsum(law)[:-1] for law in probabilities.values()]

    def outcomes(self, seed: int, draw: int) -> list[list[int]]:
        """Outcomes of the sentences of a draw, `SENTENCES_PER_DRAW` rows of one outcome for each place."""
        shape = (SENTENCES_PER_DRAW, len(self.columns))
        draws = Streams(torch.tensor([seed])).uniform(_STREAM, shape, step=draw)[0].numpy()
        outcomes = np.empty(shape, dtype=np.int64)
        for i, thresholds in enumerate(self._thresholds):
            outcomes[:, i] = np.searchsorted(thresholds, draws[:, i], side="right")
        rows: list[list[int]] = outcomes.tolist()
        return rows


class Choices:
    """The choices of one sentence, and the -log probability of those that were asked for.

    Args:
        laws: The grammar's laws.
        outcomes: One outcome for each place.
    """

    __slots__ = ("_columns", "_law_nats", "_outcomes", "nats")

    def __init__(self, laws: Laws, outcomes: list[int]) -> None:
        self._columns = laws.columns
        self._law_nats = laws.nats
        self._outcomes = outcomes
        self.nats = 0.0
        """-log probability of the outcomes asked for so far, nats."""

    def __call__(self, place: str) -> int:
        """The outcome at a place. Ask for each place at most once."""
        column = self._columns[place]
        outcome = self._outcomes[column]
        self.nats += self._law_nats[column][outcome]
        return outcome


def choices_from(laws: Laws, seed: int, first: int = 0) -> Iterator[Choices]:
    """The choices of sentences `first`, `first` + 1, ... without end."""
    draw, skipped = divmod(first, SENTENCES_PER_DRAW)
    while True:
        for outcomes in laws.outcomes(seed, draw)[skipped:]:
            yield Choices(laws, outcomes)
        draw, skipped = draw + 1, 0
