"""Trainings that wait for a trainer."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeAlias

from attnsweep.orchestrator.running.pack_sizes import PackSizer
from attnsweep.orchestrator.training.identity import Shape, Task

SizerOf: TypeAlias = Callable[[Shape], PackSizer]
"""The sizer of packs of a shape, on the trainer that takes the next pack."""


class Backlog:
    """Trainings that wait for a trainer, by shape: only trainings of one shape may share a pack.

    Args:
        keeps_trials: Whether no pack ends within a trial, unless the trial is larger than the pack.
    """

    def __init__(self, *, keeps_trials: bool = False) -> None:
        self._keeps_trials = keeps_trials
        self._by_shape: dict[Shape, list[Task]] = defaultdict(list)

    def __len__(self) -> int:
        return sum(len(tasks) for tasks in self._by_shape.values())

    def add(self, tasks: Sequence[Task]) -> None:
        """Queues trainings."""
        for task in tasks:
            self._by_shape[task.shape].append(task)

    def has_full_pack(self, sizer: SizerOf, fair_share: int) -> bool:
        """Whether enough trainings of one shape wait to fill a pack.

        Args:
            sizer: How large packs are.
            fair_share: Trainings left for each trainer.
        """
        shape = self._fullest
        return shape is not None and len(self._by_shape[shape]) >= sizer(shape).size(fair_share)

    def take_pack(self, sizer: SizerOf, fair_share: int) -> list[Task]:
        """The trainings of the next pack, oldest first, of the shape with the most waiting trainings.

        Args:
            sizer: How large packs are.
            fair_share: Trainings left for each trainer.
        """
        shape = self._fullest
        if shape is None:
            return []
        n_lanes = sizer(shape).size(fair_share)
        waiting = self._by_shape.pop(shape)
        if len(waiting) > n_lanes:
            n_lanes = self._whole_trials(waiting, n_lanes)
            self._by_shape[shape] = waiting[n_lanes:]
        return waiting[:n_lanes]

    def take_lanes(self, lanes: Sequence[tuple[int, int]]) -> list[Task] | None:
        """The trainings with these (trial, replicate), in this order. Unless all are waiting, takes none: `None`."""
        waiting = {(task.trial, task.replicate): task for tasks in self._by_shape.values() for task in tasks}
        if not lanes or any(lane not in waiting for lane in lanes):
            return None
        taken = [waiting[lane] for lane in lanes]
        chosen = set(lanes)
        for shape in {task.shape for task in taken}:
            left = [task for task in self._by_shape.pop(shape) if (task.trial, task.replicate) not in chosen]
            if left:
                self._by_shape[shape] = left
        return taken

    def _whole_trials(self, waiting: Sequence[Task], n_lanes: int) -> int:
        """The most trainings, up to so many, that end with a trial."""
        ends = (n for n in range(n_lanes, 0, -1) if waiting[n - 1].trial != waiting[n].trial)
        return next(ends, n_lanes) if self._keeps_trials else n_lanes

    @property
    def _fullest(self) -> Shape | None:
        return max(self._by_shape, key=lambda shape: len(self._by_shape[shape]), default=None)
