"""Trainings that wait for a trainer, and how many of them make a pack."""

from collections import defaultdict
from collections.abc import Sequence

from attnsweep.orchestrator.training.identity import Shape, Task


class Backlog:
    """Trainings that wait for a trainer, by shape: only trainings of one shape may share a pack.

    Args:
        pack_size: Trainings in a pack; `None` finds the fastest size for each shape.
    """

    def __init__(self, pack_size: int | None = None) -> None:
        self._by_shape: dict[Shape, list[Task]] = defaultdict(list)
        self._sizers: dict[Shape, PackSizer] = defaultdict(lambda: PackSizer(pack_size))

    def __len__(self) -> int:
        return sum(len(tasks) for tasks in self._by_shape.values())

    def sizer(self, shape: Shape) -> "PackSizer":
        """The sizer of packs of a shape."""
        return self._sizers[shape]

    def add(self, tasks: Sequence[Task]) -> None:
        """Queues trainings."""
        for task in tasks:
            self._by_shape[task.shape].append(task)

    def has_full_pack(self, fair_share: int) -> bool:
        """Whether enough trainings of one shape wait to fill a pack.

        Args:
            fair_share: Trainings left for each trainer.
        """
        shape = self._fullest
        return shape is not None and len(self._by_shape[shape]) >= self._sizers[shape].size(fair_share)

    def take_pack(self, fair_share: int) -> list[Task]:
        """The trainings of the next pack, oldest first, of the shape with the most waiting trainings.

        Args:
            fair_share: Trainings left for each trainer.
        """
        shape = self._fullest
        if shape is None:
            return []
        n_lanes = self._sizers[shape].size(fair_share)
        waiting = self._by_shape.pop(shape)
        if len(waiting) > n_lanes:
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

    @property
    def _fullest(self) -> Shape | None:
        return max(self._by_shape, key=lambda shape: len(self._by_shape[shape]), default=None)


class PackSizer:
    """Finds the pack size that trains one shape fastest: doubles it while that trains more steps per second.

    Args:
        fixed: The size to use throughout; `None` finds one.
    """

    smallest, largest = 64, 4096
    _worth_it = 1.05
    _last_may_be = 1.5

    def __init__(self, fixed: int | None) -> None:
        self._fixed = fixed
        self._rates: dict[int, float] = {}
        self._limit = fixed or self.largest

    def size(self, fair_share: int) -> int:
        """The size of the next pack.

        Args:
            fair_share: Trainings left for each trainer: with a larger pack another trainer would have no work.
        """
        if self._fixed is not None:
            return self._limit
        wanted = self._wanted()
        # A few trainings left over join the last pack: a small pack costs nearly as much as a full one.
        is_last = fair_share <= min(self._last_may_be * wanted, self._limit)
        return max(fair_share if is_last else wanted, 1)

    def measured(self, n_lanes: int, lane_steps_per_second: float) -> None:
        """Learns from the speed of a trained pack, if the pack had the wanted size."""
        if n_lanes != self._wanted():
            return
        smaller = max((rate for size, rate in self._rates.items() if size < n_lanes), default=0.0)
        # A size that gains too little counts as no better, so that the search ends there.
        gains = lane_steps_per_second > self._worth_it * smaller
        self._rates[n_lanes] = lane_steps_per_second if gains else min(lane_steps_per_second, smaller)

    def out_of_memory(self, n_lanes: int) -> None:
        """Never makes a pack of this size again."""
        self._limit = min(self._limit, max(n_lanes // 2, 1))

    def _wanted(self) -> int:
        if not self._rates:
            return min(self.smallest, self._limit)
        best = max(self._rates, key=lambda size: self._rates[size])
        double = best * 2
        return double if best == max(self._rates) and double <= self._limit else min(best, self._limit)
