"""Packs: what may share one."""

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from attnsweep.orchestrator.running.backlog import Backlog
from attnsweep.orchestrator.running.pack_sizes import PackSizer
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.identity import Shape, Task, tasks_of
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.category_pairs import CategoryPairsParameters

SWEEP = Sweep(name="s", workload="category_pairs", space={}, trials=100)


DIRECTORY = SweepDirectory(
    place=LocalFolder(Path("s")),
    sweep="s",
    spec=SWEEP,
    spec_sha256=SWEEP.sha256(),
    defaults={"n_categories": 7},
    provenance={},
)


def _sizer(shape: Shape) -> PackSizer:
    return PackSizer(None)


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
        is_full = backlog.has_full_pack(_sizer, size)
        pack = backlog.take_pack(_sizer, size)
        assert is_full == (len(pack) == size)
        assert 0 < len(pack) <= size
        assert len(backlog) == n_before - len(pack)
        assert len({task.training.parameters.static_key() for task in pack}) == 1
        seen.update((task.trial, task.replicate) for task in pack)
    assert not backlog.has_full_pack(_sizer, 1)
    assert set(seen.values()) == {1}
    assert len(seen) == 3 * len(orders)


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
    assert len(backlog.take_pack(_sizer, fair_share=9)) == 4
    assert backlog.take_pack(_sizer, fair_share=9) == []
