"""Finds by measurement how many trainings of one shape make a pack. Imports no library of storage."""

from collections.abc import Mapping
from typing import Protocol

from attnsweep.workloads.engine.device_memory import MemoryOfPacks, PackMemory


class Measured(Protocol):
    """Interface of measurements that an earlier run has made for one shape: speeds, and the largest pack size."""

    @property
    def rates(self) -> Mapping[int, float]:
        """The measured training steps per second, summed over lanes, by pack size."""

    @property
    def limit(self) -> int:
        """The largest size that a pack may have."""


class PackSizer:
    """Finds the pack size at which trainings of one shape run fastest. It doubles the size as long as this raises the
    steps per second.

    On a GPU, where a pack of 512 takes hardly longer than one of 64, the size grows eightfold. The peak memory of packs
    predicts the largest pack that fits; a size that did not fit is halved.

    Args:
        fixed: The size of all packs; `None` searches for one.
        measured: The measurements of an earlier run.
        slack: By how many trainings a measured pack may be smaller than wanted, because packs end with whole trials.

    Attributes:
        rates: Training steps per second by pack size, as in `Measured`.
        limit: The largest size that a pack may have.
    """

    smallest, largest = 64, 4096
    _worth_it = 1.05
    _last_may_be = 1.5
    _growth_on_gpu = 8

    def __init__(self, fixed: int | None, measured: Measured | None = None, slack: int = 0) -> None:
        self._fixed, self._slack = fixed, slack
        self.rates: dict[int, float] = {} if measured is None else dict(measured.rates)
        self.limit = fixed or (self.largest if measured is None else measured.limit)
        self._peaks: dict[int, int] = {}
        self._fitting = self.limit

    @property
    def has_found(self) -> bool:
        """Whether any speed or any limit of the size was measured."""
        return bool(self.rates) or self.limit != self.largest

    def size(self, fair_share: int) -> int:
        """Returns the number of trainings that the next pack should have.

        Args:
            fair_share: Trainings left per trainer: with a larger pack, another trainer would have no work.
        """
        if self._fixed is not None:
            return self.limit
        wanted = self._wanted()
        # A few left-over trainings join the last pack, because a small pack costs nearly as much as a full one.
        is_last = fair_share <= min(self._last_may_be * wanted, self._most)
        return max(fair_share if is_last else wanted, 1)

    def measured(self, n_lanes: int, lane_steps_per_second: float, memory: PackMemory | None = None) -> None:
        """Records the speed of a trained pack, unless the pack's size is not the one to measure now.

        Args:
            n_lanes: The pack's number of lanes.
            lane_steps_per_second: The pack's training steps per second, summed over lanes.
            memory: The pack's use of GPU memory.
        """
        if memory is not None:
            self._limit_to(memory)
        if not self._wanted() - self._slack <= n_lanes <= self._wanted():
            return
        n_lanes = self._wanted()
        smaller = max((rate for size, rate in self.rates.items() if size < n_lanes), default=0.0)
        # If a pack size gains too little speed, its speed is recorded as that of the smaller size, so that the search
        # for a size ends.
        gains = lane_steps_per_second > self._worth_it * smaller
        self.rates[n_lanes] = lane_steps_per_second if gains else min(lane_steps_per_second, smaller)

    def out_of_memory(self, n_lanes: int) -> None:
        """Records that a pack of this size did not fit into memory. No later pack is that large."""
        self.limit = min(self.limit, max(n_lanes // 2, 1))

    def _limit_to(self, memory: PackMemory) -> None:
        """Limits the size of later packs by the peak memory of the packs so far and the memory that is free."""
        self._peaks[memory.width] = memory.peak
        narrow, wide = min(self._peaks), max(self._peaks)
        # If only one pack width was measured, all of its memory is assumed to grow with the number of lanes.
        least = (narrow, self._peaks[narrow]) if narrow < wide else (0, 0)
        most = MemoryOfPacks.of(least, (wide, self._peaks[wide])).most_lanes(memory.free)
        # Memory depends on the width, which is the pack size rounded up to a power of two. A width that has fitted into
        # memory once fits again.
        self._fitting = max(1 << (most.bit_length() - 1), wide)

    @property
    def _most(self) -> int:
        return min(self.limit, self._fitting)

    def _wanted(self) -> int:
        if not self.rates:
            return min(self.smallest, self._most)
        best = max(self.rates, key=lambda size: self.rates[size])
        growth = self._growth_on_gpu if self._peaks else 2
        larger = min(best * growth, self._most)
        return larger if best == max(self.rates) and larger >= 2 * best else min(best, self._most)
