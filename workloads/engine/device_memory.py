"""How many trainings fit the memory of a device, found from what two small packs of them take.

Sweeps on GPUs use it from the second size of packs on. It is tested with a stand-in for CUDA's counters, on CPUs.
`benchmarks/gpu.py` compares what it predicts with what larger packs take.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

import torch

_SHARE = 0.9
"""Of the free memory that a pack may take: the allocator rounds each tensor up, and cannot use all gaps."""


class DeviceMemory(Protocol):
    """The memory of a device."""

    def begin(self) -> None:
        """Begins to count."""

    def peak(self) -> int:
        """The most bytes that were allocated at once since `begin`, besides those from before."""

    def free(self) -> int:
        """Bytes that this process can still allocate."""


class CudaMemory:
    """That of a GPU, by the counters of PyTorch's allocator.

    Args:
        device: Such as `cuda`.
    """

    def __init__(self, device: str) -> None:
        self._device, self._before = device, 0

    def begin(self) -> None:
        """See `DeviceMemory`."""
        self._before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> int:
        """See `DeviceMemory`."""
        return torch.cuda.max_memory_allocated(self._device) - self._before

    def free(self) -> int:
        """See `DeviceMemory`."""
        free, _ = torch.cuda.mem_get_info(self._device)
        # What the allocator has kept of freed tensors is free for the next ones.
        kept = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return free + kept


def memory_of(device: str) -> DeviceMemory | None:
    """The memory of a device; `None` if nobody counts it, as on a CPU."""
    return CudaMemory(device) if device == "cuda" else None


def peak_of(memory: DeviceMemory, run: Callable[[], object]) -> int:
    """The most bytes that `run` had allocated at once."""
    memory.begin()
    run()
    return memory.peak()


@dataclass(frozen=True)
class PackMemory:
    """What a pack took.

    Attributes:
        width: The lanes that it computed.
        peak: Bytes that it had allocated at once.
        free: Bytes that were free before it was built.
    """

    width: int
    peak: int
    free: int


@dataclass(frozen=True)
class MemoryOfPacks:
    """What packs of one shape take at their peak.

    Attributes:
        fixed: Bytes, whatever the pack's size.
        per_lane: Bytes for each training.
    """

    fixed: float
    per_lane: float

    @classmethod
    def measured(cls, train: Callable[[int], object], memory: DeviceMemory, sizes: tuple[int, int] = (64, 256)) -> Self:
        """What two packs took.

        Args:
            train: Builds a pack of a size, trains it up to and with a probe, and lets go of it.
            memory: Of the device.
            sizes: Of the two, the smaller one first.
        """
        few, many = sizes
        return cls.of((few, peak_of(memory, partial(train, few))), (many, peak_of(memory, partial(train, many))))

    @classmethod
    def of(cls, small: tuple[int, int], large: tuple[int, int]) -> Self:
        """From the sizes of two packs, each with its peak in bytes."""
        (few, bytes_of_few), (many, bytes_of_many) = small, large
        # The allocator hands out large pieces. A slope far below the mean would promise endless packs.
        per_lane = max((bytes_of_many - bytes_of_few) / (many - few), bytes_of_many / many / 2)
        return cls(max(bytes_of_few - per_lane * few, 0.0), per_lane)

    def peak(self, n_lanes: int) -> float:
        """Bytes that a pack of this size takes."""
        return self.fixed + self.per_lane * n_lanes

    def most_lanes(self, free: int) -> int:
        """The largest pack that fits so many free bytes, at least 1."""
        return max(int((_SHARE * free - self.fixed) / self.per_lane), 1)
