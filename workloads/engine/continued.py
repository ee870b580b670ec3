"""Draws random numbers for continuations, which are copies of a training that from some step on draw other data or
other dropout masks.

Up to that step, a continuation has the training's own weights, optimizer state and records. From then on, the random
streams of its batches, or those of dropout, have another key. What was drawn before is kept: the task, the held-out
data, the split of a table, and the order of a pass through the data that has begun. Axes: L continuation.
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
from attnsweep.workloads.engine.layout import prefixed, under
from attnsweep.workloads.engine.streams import Streams

Redrawn: TypeAlias = Literal["data", "noise"]

NOISE = "dropout"
"""The prefix of the names of random streams that count as noise. All other streams of a batch count as data."""


@dataclass(frozen=True)
class Redraw:
    """Tells which random streams the continuations (copies) of a training draw anew, and from which step on.

    Attributes:
        what: Which streams get new keys: `data` or `noise`.
        seeds: The new key of each continuation. If it is the training's own seed, the draws are those of the training.
        step: The first step whose draws have the new keys.
        kept: Names of the streams from which the held-out data were drawn: at step 0 they keep the training's key.
        found: Names of the streams that got new keys so far.
    """

    what: Redrawn
    seeds: Sequence[int]
    step: int
    kept: frozenset[str] = frozenset()
    found: set[str] = field(default_factory=set)

    def lanes(self, lanes: Lanes[P]) -> Lanes[P]:
        """Returns the same trainings, but some of their random streams give new values from the training step `step`
        on. Before that step, all streams give the same values as before."""
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
            return self._seeds
        redraw.found.add(name)
        return self._later_seeds

    def select(self, lanes: Tensor) -> Self:
        return type(self)(self._seeds[lanes], self._later_seeds[lanes], self._redraw)


class _Noting(Streams):
    """Random streams that record in `names` the name of each stream from which values are drawn at step 0."""

    def __init__(self, seeds: Tensor, names: set[str]) -> None:
        super().__init__(seeds)
        self._names = names

    def seeds_at(self, name: str, used_from: int) -> Tensor:
        if used_from == 0:
            self._names.add(name)
        return self._seeds

    def select(self, lanes: Tensor) -> Self:
        return type(self)(self._seeds[lanes], self._names)


def drawn_for_evaluation(workload: Workload[Any], training: Training[Any]) -> frozenset[str]:
    """Returns the names of the random streams from which a workload draws its held-out data at step 0.

    If a batch draws from such a stream at step 0, the draw is the training's task, which continuations (copies of the
    training) keep.
    """
    names: set[str] = set()
    lanes = Lanes([training], torch.device("cpu"))
    lanes.streams = _Noting(lanes.streams.seeds, names)
    workload.eval_batch(lanes)
    return frozenset(names)


def repeated(checkpoint: Checkpoint, n: int) -> Checkpoint:
    """Makes a checkpoint of n copies of a training from the checkpoint of that training alone.

    Batches that had been drawn for later steps are drawn again.
    """
    lanes, heads = np.arange(n), under("record/heads", checkpoint)
    if heads:
        n_probes = len(heads["step"])
        heads = {name: np.repeat(array, n, axis=0) for name, array in heads.items()}
        heads["step"] = checkpoint["record/heads/step"]
        heads |= {"lanes": np.tile(lanes, n_probes), "n_lanes": np.full(n_probes, n)}
    return {
        **{name: _copies(array, n) for name, array in checkpoint.items()},
        **prefixed("record/heads", heads),
        "position": lanes,
        "drawn_for": lanes,
        "first_drawn": checkpoint["optimizer/n_updates"],
    }


def _copies(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Repeats an array that has one row, that of a training, `n` times along its first axis."""
    return np.repeat(array, n, axis=0) if array.ndim and len(array) == 1 else array
