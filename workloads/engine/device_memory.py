"""Predicts how many trainings of one program fit into a device's memory, from the peaks of two small programs.

Sweeps on GPUs use the prediction for all packs after those of the first size. Tests replace CUDA's memory counters, so
they run on CPUs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

import torch

_SHARE = 0.9
"""The share of the free memory that one program may take: the allocator rounds sizes up and leaves gaps."""


class DeviceMemory(Protocol):
    """Reads the peak of a device's used memory since `begin`, and how much memory is free."""

    def begin(self) -> None:
        """Starts to measure the peak of allocated memory, relative to the memory that is allocated now."""

    def peak(self) -> int:
        """Returns the peak of allocated bytes since `begin`, minus the bytes that were allocated at `begin`."""

    def free(self) -> int:
        """Returns the bytes that this process can still allocate."""


class CudaMemory:
    def __init__(self, device: str) -> None:
        self._device, self._before = device, 0

    def begin(self) -> None:
        self._before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self._device) - self._before

    def free(self) -> int:
        free, _ = torch.cuda.mem_get_info(self._device)
        # PyTorch's allocator keeps the memory of freed tensors for later ones, so this memory counts as free.
        cached = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return free + cached


def memory_of(device: str) -> DeviceMemory | None:
    """Returns the object that reads a device's memory counters; `None` for a device without them, such as a CPU."""
    return CudaMemory(device) if device == "cuda" else None


def peak_of(memory: DeviceMemory, run: Callable[[], object]) -> int:
    """Calls `run`, and returns the peak of the bytes that were allocated meanwhile."""
    memory.begin()
    run()
    return memory.peak()


@dataclass(frozen=True)
class PackMemory:
    """The memory that one pack of `width` lanes, copies included, took on a device."""

    width: int
    peak: int
    free: int


@dataclass(frozen=True)
class MemoryOfPacks:
    """A linear model of a pack's peak memory, in bytes: `fixed + per_lane * n_lanes`."""

    fixed: float
    per_lane: float

    @classmethod
    def measured(cls, train: Callable[[int], object], memory: DeviceMemory, sizes: tuple[int, int] = (64, 256)) -> Self:
        """A straight line through the peaks of two packs, the smaller first, which `train` builds, trains past a
        measurement, and releases."""
        few, many = sizes
        return cls.of((few, peak_of(memory, partial(train, few))), (many, peak_of(memory, partial(train, many))))

    @classmethod
    def of(cls, small: tuple[int, int], large: tuple[int, int]) -> Self:
        """A line through two packs, each given as its number of trainings and its peak in bytes."""
        (few, bytes_of_few), (many, bytes_of_many) = small, large
        # Memory comes in large pieces, so the two peaks may be nearly equal: a training is assumed to need at least
        # half of the larger pack's mean.
        per_lane = max((bytes_of_many - bytes_of_few) / (many - few), bytes_of_many / many / 2)
        return cls(max(bytes_of_few - per_lane * few, 0.0), per_lane)

    def peak(self, n_lanes: int) -> float:
        return self.fixed + self.per_lane * n_lanes

    def most_lanes(self, free: int) -> int:
        return max(int((_SHARE * free - self.fixed) / self.per_lane), 1)
