"""The protocols of executors, which take the steps of a pack in place of the vmapped engine.

Axes: A active lane, L lane.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from attnsweep.workloads.engine.compiling.gradient import GradientProgram
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.lane_state import LaneState

Batches = Callable[[int, int], Sequence[Batch]]
"""A function of `start` and `until`: the batches of the steps `start` to `until` - 1, or of the first few of these."""


class Executor(Protocol):
    """Takes the steps of trainings of one shape, in place of the default engine (`vmap`)."""

    def advance(self, lanes: LaneState, batches: Batches, until: int) -> None:
        """Trains all lanes up to step `until`, or until a batch has a shape that this program was not compiled for."""


class Executors(Protocol):
    """Makes and keeps the executors of a workload, one per shape of trainings."""

    def of(self, lanes: LaneState, batch: Batch) -> Executor | None:
        """Returns the executor for trainings and a batch (L, ...) of the given shapes; `None` if there is none."""

    def gradient_of(self, lanes: LaneState, batch: Batch) -> GradientProgram | None:
        """Returns the program of loss and gradient, for trainings without an executor; `None` if there is none."""
