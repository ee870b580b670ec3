"""What takes the steps of a pack in the place of the vmapped engine. Axes: A active lane, L lane."""

from collections.abc import Callable, Sequence
from typing import Protocol

from attnsweep.workloads.engine.compiling.gradient import GradientProgram
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.lane_state import LaneState

Batches = Callable[[int, int], Sequence[Batch]]
"""The batches of the steps from one number to before another, or of the first of them."""


class Executor(Protocol):
    """Something that takes the steps of one shape in the place of the vmapped engine."""

    def advance(self, lanes: LaneState, batches: Batches, until: int) -> None:
        """Takes all lanes on to step `until`, or to the first whose batch has other shapes than the program's.

        Args:
            lanes: A trainings, updated in place.
            batches: The batches (A, ...) of the steps from one number to before another, or of the first of them.
            until: A later step than the optimizer's.
        """


class Executors(Protocol):
    """The programs of a workload, by shape."""

    def of(self, lanes: LaneState, batch: Batch) -> Executor | None:
        """The program for trainings and a batch (L, ...) like these; `None` if their steps have none."""

    def gradient_of(self, lanes: LaneState, batch: Batch) -> GradientProgram | None:
        """The program of their loss and its gradient, where steps have none; `None` if it is vmapped."""
