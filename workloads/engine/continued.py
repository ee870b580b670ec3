"""Continuations: copies of a training that from some step on draw other data or other dropout masks.

Until then they have its weights, optimizer state and records; then the streams of their batches, or those of dropout,
get another key. What was drawn before is kept: the task, the held-out data, the split of a table, and the order of a
pass through the data that has begun. Axes: L continuation.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.engine.checkpoint import Checkpoint
from attnsweep.workloads.engine.contract import Lanes, P, Training, Workload
from attnsweep.workloads.engine.streams import Streams

Redrawn: TypeAlias = Literal["data", "noise"]

NOISE = "dropout"
"""The prefix of the names of random streams that count as noise. All other streams of a batch count as data."""


@dataclass(frozen=True)
class Redraw:
    """Which random streams continuations draw anew, and from which step on.

    Attributes:
        seeds: Each one's new key; with the training's own seed it draws what the training drew.
        kept: Streams of the held-out data: at step 0 they keep the training's key.
        found: Streams that got new keys so far.
    """

    what: Redrawn
    seeds: Sequence[int]
    step: int
    kept: frozenset[str] = frozenset()
    found: set[str] = field(default_factory=set)

    def lanes(self, lanes: Lanes[P]) -> Lanes[P]:
        redrawn = copy(lanes)
        redrawn.streams = _Continued(lanes.streams.seeds, torch.tensor(self.seeds, device=lanes.device), self)
        return redrawn


class _Continued(Streams):
    def __init__(self, seeds: Tensor, later_seeds: Tensor, redraw: Redraw) -> None:
        super().__init__(seeds)
        self._later_seeds, self._redraw = later_seeds, redraw

    def seeds_at(self, name: str, used_from: int) -> Tensor:
        redraw = self._redraw
        is_of_start = used_from < redraw.step or (used_from == 0 and name in redraw.kept)
        if is_of_start or name.startswith(NOISE) != (redraw.what == "noise"):
            return self.seeds
        redraw.found.add(name)
        return self._later_seeds

    def select(self, lanes: Tensor) -> Self:
        return type(self)(self.seeds[lanes], self._later_seeds[lanes], self._redraw)


class _Noting(Streams):
    """Records in `names` the streams from which values are drawn at step 0."""

    def __init__(self, seeds: Tensor, names: set[str]) -> None:
        super().__init__(seeds)
        self._names = names

    def seeds_at(self, name: str, used_from: int) -> Tensor:
        if used_from == 0:
            self._names.add(name)
        return self.seeds

    def select(self, lanes: Tensor) -> Self:
        return type(self)(self.seeds[lanes], self._names)


def drawn_for_evaluation(workload: Workload[Any], training: Training[Any]) -> frozenset[str]:
    """The streams of the held-out data at step 0. Where a batch draws from them too, it is the task, which is kept."""
    names: set[str] = set()
    lanes = Lanes([training], torch.device("cpu"))
    lanes.streams = _Noting(lanes.streams.seeds, names)
    workload.eval_batch(lanes)
    return frozenset(names)


def repeated(checkpoint: Checkpoint, n: int) -> Checkpoint:
    """From one training's checkpoint that of n copies of it; batches drawn ahead are drawn again."""
    places = {name for name in checkpoint if name in ("position", "drawn_for") or name.endswith("/lanes")}
    return {
        **{name: _copies(array, n) for name, array in checkpoint.items()},
        **{name: np.arange(n) for name in places},
        "first_drawn": checkpoint["optimizer/n_updates"],
    }


def _copies(array: NDArray[Any], n: int) -> NDArray[Any]:
    return np.repeat(array, n, axis=0) if array.ndim and len(array) == 1 else array
