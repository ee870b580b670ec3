"""The pack size that two small packs predict fits the memory, and uses most of it."""

import pytest
import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.device_memory import MemoryOfPacks, peak_of
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from tests.workloads.engine.counted_memory import CountedMemory


@pytest.mark.slow
def test_the_largest_pack_fits_and_a_quarter_more_does_not() -> None:
    workload, memory = CategoryPairs(), CountedMemory(2**20)
    values: dict[str, Value] = {"variant": "positions_only", "optimizer": "adam", "n_steps": 1}

    def train(size: int) -> None:
        pack = Pack(workload, [Training(defaults(workload, **values), seed) for seed in range(size)])
        pack.train_to_end(4)

    with memory:
        size = MemoryOfPacks.measured(train, memory, (2, 8)).most_lanes(memory.free())
        assert size > 8
        assert peak_of(memory, lambda: train(size)) > 0.8 * memory.free()
        with pytest.raises(torch.OutOfMemoryError):
            train(size + size // 4 + 1)


def test_peaks_that_hardly_grow_do_not_promise_endless_packs() -> None:
    """An allocator that hands out large pieces may show the same peak for both packs, or a smaller one."""
    assert MemoryOfPacks.of((32, 2**20), (128, 2**20)).most_lanes(2**30) <= 2 * 128 * 2**10
    assert MemoryOfPacks.of((32, 2**21), (128, 2**20)).most_lanes(2**30) <= 2 * 128 * 2**10


def test_a_pack_has_a_training_however_little_memory_is_free() -> None:
    assert MemoryOfPacks.of((32, 2**20), (128, 2**22)).most_lanes(0) == 1
