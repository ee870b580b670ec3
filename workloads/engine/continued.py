"""What the continuations of a training draw otherwise than it, from a step on. Axes: L lane.

A continuation has the training's own parameters, averages and records up to the step. After it, the streams of its
steps' batches, or those of dropout, have another key. What was drawn before stays: the task, the held-out data, the
split of a table, and the order of a pass that has begun.
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
"""Streams whose names begin so are noise; all others that a batch draws from are data."""


@dataclass(frozen=True)
class Redraw:
    """What L continuations of one training draw anew.

    Attributes:
        what: `data` or `noise`.
        seeds: (L,) the key of each. The training's own seed draws what it drew.
        step: The first step whose draws have the new key.
        kept: Streams that the training's start drew at step 0, which stay if `step` is 0.
        found: Streams that were drawn anew so far.
    """

    what: Redrawn
    seeds: Sequence[int]
    step: int
    kept: frozenset[str] = frozenset()
    found: set[str] = field(default_factory=set)

    def lanes(self, lanes: Lanes[P]) -> Lanes[P]:
        """The L trainings, for the batches of steps from `step` on."""
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
    """Notes the streams that are drawn at step 0."""

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
    """The streams that held-out data are drawn from: a batch that draws from one of them at step 0 draws its task."""
    names: set[str] = set()
    lanes = Lanes([training], torch.device("cpu"))
    lanes.streams = _Noting(lanes.streams.seeds, names)
    workload.eval_batch(lanes)
    return frozenset(names)


def repeated(checkpoint: Checkpoint, n: int) -> Checkpoint:
    """The checkpoint of a pack of one training, which takes one step after the other, as that of n copies of it.

    Batches that were drawn ahead are drawn again.
    """
    lanes, of_heads = np.arange(n), under("record/heads", checkpoint)
    if of_heads:
        n_probes = len(of_heads["step"])
        of_heads = {name: np.repeat(array, n, axis=0) for name, array in of_heads.items()}
        of_heads["step"] = checkpoint["record/heads/step"]
        of_heads |= {"lanes": np.tile(lanes, n_probes), "n_lanes": np.full(n_probes, n)}
    return {
        **{name: _copies(array, n) for name, array in checkpoint.items()},
        **prefixed("record/heads", of_heads),
        "position": lanes,
        "drawn_for": lanes,
        "first_drawn": checkpoint["optimizer/n_updates"],
    }


def _copies(array: NDArray[Any], n: int) -> NDArray[Any]:
    """(n, ...) of (1, ...); numbers, and copies that a fixed width already made, as they are."""
    return np.repeat(array, n, axis=0) if array.ndim and len(array) == 1 else array
