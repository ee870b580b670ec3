"""The random choices of sentence i as a function of (seed, i): a row of outcomes, with one column per place.

A place is a named choice, such as `subject.noun`. Each place has its own column, so a choice that a sentence does not
make does not shift the others, and a longer corpus begins with the sentences of a shorter one.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from attnsweep.workloads.engine.streams import Streams

SENTENCES_PER_DRAW = 1024
_STREAM = "grammar"


class Laws:
    """The places at which the grammar chooses, with the probabilities of the outcomes at each.

    Args:
        probabilities: The probabilities of the outcomes, which sum to 1, by place.
    """

    def __init__(self, probabilities: Mapping[str, tuple[float, ...]]) -> None:
        self.columns = {place: i for i, place in enumerate(probabilities)}
        self.nats = [[-math.log(p) for p in law] for law in probabilities.values()]
        self._thresholds = [np.cumsum(law)[:-1] for law in probabilities.values()]

    def outcomes(self, seed: int, draw: int) -> list[list[int]]:
        """Draws the outcomes of `SENTENCES_PER_DRAW` sentences: one row per sentence, one outcome per place."""
        shape = (SENTENCES_PER_DRAW, len(self.columns))
        draws = Streams(torch.tensor([seed])).uniform(_STREAM, shape, step=draw)[0].numpy()
        outcomes = np.empty(shape, dtype=np.int64)
        for i, thresholds in enumerate(self._thresholds):
            outcomes[:, i] = np.searchsorted(thresholds, draws[:, i], side="right")
        rows: list[list[int]] = outcomes.tolist()
        return rows


class Choices:
    """The random choices of one sentence, and -log p of those that were requested.

    Args:
        laws: The places of the grammar and their probabilities.
        outcomes: One outcome for each place.
    """

    __slots__ = ("_columns", "_law_nats", "_outcomes", "nats")

    def __init__(self, laws: Laws, outcomes: list[int]) -> None:
        self._columns = laws.columns
        self._law_nats = laws.nats
        self._outcomes = outcomes
        self.nats = 0.0
        """-log p of the outcomes requested so far, in nats."""

    def __call__(self, place: str) -> int:
        """Returns the outcome at a place and adds its -log p to `nats`. A place may be requested only once."""
        column = self._columns[place]
        outcome = self._outcomes[column]
        self.nats += self._law_nats[column][outcome]
        return outcome


def choices_from(laws: Laws, seed: int, first: int = 0) -> Iterator[Choices]:
    """Yields the choices of the sentences with numbers `first`, `first` + 1, ... without end."""
    draw, skipped = divmod(first, SENTENCES_PER_DRAW)
    while True:
        for outcomes in laws.outcomes(seed, draw)[skipped:]:
            yield Choices(laws, outcomes)
        draw, skipped = draw + 1, 0
