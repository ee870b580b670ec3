"""Packs: what may share one, and how large they get."""

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from attnsweep.orchestrator.running.backlog import Backlog, PackSizer
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.identity import Task, tasks_of
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.category_pairs import CategoryPairsParameters

SWEEP = Sweep(name="s", workload="category_pairs", space={}, trials=100)


DIRECTORY = SweepDirectory(LocalFolder(Path("s")), "s", SWEEP, SWEEP.sha256(), {"n_categories": 7}, {})


def _tasks(trial: int, n_positions: int) -> list[Task]:
    return tasks_of(DIRECTORY, CategoryPairsParameters, trial, {"n_positions": n_positions}, range(3))


@given(st.lists(st.tuples(st.sampled_from([4, 5, 6]), st.integers(1, 9)), min_size=1, max_size=20))
def test_the_backlog_hands_out_each_training_once_in_packs_of_one_shape(orders: list[tuple[int, int]]) -> None:
    backlog = Backlog()
    for trial, (n_positions, _) in enumerate(orders):
        backlog.add(_tasks(trial, n_positions))
    seen: Counter[tuple[int, int]] = Counter()
    sizes = [size for _, size in orders]
    while backlog:
        # So few are left per trainer that they become one pack.
        size, n_before = sizes[len(seen) % len(sizes)], len(backlog)
        is_full = backlog.has_full_pack(size)
        pack = backlog.take_pack(size)
        assert is_full == (len(pack) == size)
        assert 0 < len(pack) <= size
        assert len(backlog) == n_before - len(pack)
        assert len({task.training.parameters.static_key() for task in pack}) == 1
        seen.update((task.trial, task.replicate) for task in pack)
    assert not backlog.has_full_pack(1)
    assert set(seen.values()) == {1}
    assert len(seen) == 3 * len(orders)


MANY = 10**6


def _climb(rates: dict[int, float], n_packs: int = 20) -> int:
    sizer = PackSizer(None)
    for _ in range(n_packs):
        sizer.measured(sizer.size(MANY), rates.get(sizer.size(MANY), 1.0))
    return sizer.size(MANY)


def test_packs_grow_while_that_pays() -> None:
    assert _climb({64: 100, 128: 180, 256: 250, 512: 255}) == 256
    assert _climb({64: 100, 128: 60}) == 64
    assert _climb({size: size for size in (64, 128, 256, 512, 1024, 2048, 4096)}) == PackSizer.largest


def test_the_last_packs_are_shared_out_but_a_fixed_size_is_kept() -> None:
    assert PackSizer(None).size(fair_share=10) == 10
    assert PackSizer(None).size(fair_share=0) == 1
    assert PackSizer(7).size(fair_share=3) == 7


def test_a_pack_that_did_not_fit_is_never_made_again() -> None:
    sizer = PackSizer(None)
    sizer.measured(64, 100.0)
    sizer.out_of_memory(128)
    sizer.out_of_memory(512)
    for _ in range(5):
        sizer.measured(sizer.size(MANY), 1000.0)
        assert sizer.size(MANY) <= 64


def test_a_little_left_over_joins_the_last_pack() -> None:
    assert PackSizer(None).size(fair_share=80) == 80
    assert PackSizer(None).size(fair_share=96) == 96
    assert PackSizer(None).size(fair_share=97) == 64
    sizer = PackSizer(None)
    sizer.out_of_memory(128)
    assert sizer.size(fair_share=80) == 64


def test_a_pack_of_an_earlier_run_is_put_together_again_or_not_at_all() -> None:
    backlog = Backlog()
    for trial, n_positions in enumerate((4, 4, 5)):
        backlog.add(_tasks(trial, n_positions))
    assert backlog.take_lanes([(1, 0), (7, 7)]) is None
    assert backlog.take_lanes([]) is None
    assert len(backlog) == 9
    taken = backlog.take_lanes([(1, 2), (0, 0)])
    assert taken is not None
    assert [(task.trial, task.replicate) for task in taken] == [(1, 2), (0, 0)]
    assert len(backlog) == 7
    assert backlog.take_lanes([(0, 0)]) is None
    assert backlog.take_lanes([(2, replicate) for replicate in range(3)]) is not None
    assert len(backlog) == 4
    assert len(backlog.take_pack(fair_share=9)) == 4
    assert backlog.take_pack(fair_share=9) == []
