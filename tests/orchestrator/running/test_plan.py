"""Packs: what may share one, how large they get, and what becomes of one that comes back."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.plan import Backlog, Fail, Forget, PackSizer, Shrink, Stop, SweepPlan
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import PackOrder, Raised, TrainerLost
from attnsweep.orchestrator.training.tasks import Shape, Task, tasks_of
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.engine.contract import Batch, Lanes, Training
from tests.fault import sweeps

SWEEP = Sweep(name="s", workload="category_pairs", space={}, trials=100)
TASKS = [Task(0, replicate, Training(CategoryPairsParameters(), replicate)) for replicate in range(3)]
ORDER, ALONE = PackOrder("p", TASKS), PackOrder("q", TASKS[:1])
RAISED = Raised("ValueError: no", out_of_memory=False, device="cpu", host="here")
LOST, OUT_OF_MEMORY = TrainerLost("gone", out_of_memory=False), TrainerLost("killed", out_of_memory=True)

DIRECTORY = SweepDirectory(
    place=Path("s"), sweep="s", given=SWEEP, spec_sha256=SWEEP.sha256(), defaults={"n_categories": 7}, provenance={}
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


def _plan(max_failures: int | None = None) -> SweepPlan:
    return SweepPlan(Backlog(), max_failures)


def _to_continue(plan: SweepPlan) -> list[PackOrder]:
    found = []
    while (order := plan.pack_to_continue()) is not None:
        found.append(order)
    return found


def test_a_pack_that_is_handed_back_goes_on_and_one_that_raises_is_halved_until_the_fault_is_alone() -> None:
    plan = _plan()
    plan.handed_back(ORDER)
    assert plan.has_work
    assert _to_continue(plan) == [ORDER]
    assert plan.raised(ORDER, RAISED) == [Forget("p")]
    assert _to_continue(plan) == [PackOrder("pa", TASKS[:1]), PackOrder("pb", TASKS[1:])]
    assert plan.raised(ALONE, RAISED) == [Fail(ALONE, "ValueError: no", "cpu", "here")]
    assert not plan.has_work


def test_a_pack_that_has_lost_its_trainer_goes_on_then_is_halved_then_fails() -> None:
    plan = _plan()
    assert [plan.lost(ORDER, LOST, 1) for _ in range(3)] == [[], [], [Forget("p")]]
    assert [order.pack for order in _to_continue(plan)] == ["p", "p", "pa", "pb"]
    *again, failed = [plan.lost(ALONE, LOST, 1) for _ in range(6)]
    assert again == [[]] * 5
    error = "the training lost its trainer 6 times while it was alone in its pack; the last time: gone"
    assert failed == [Fail(ALONE, error)]


def test_a_pack_that_gets_further_may_lose_as_many_trainers_again() -> None:
    plan = _plan()
    for _ in range(100):
        assert [plan.lost(ORDER, LOST, 1) for _ in range(2)] == [[], []]
        plan.got_further("p")


def test_a_pack_whose_memory_ran_out_is_halved_at_once_and_none_is_as_large_again() -> None:
    plan = _plan()
    assert plan.lost(ORDER, OUT_OF_MEMORY, 1) == [Shrink(ORDER), Forget("p")]
    out_of_memory = Raised("CUDA out of memory", out_of_memory=True, device="cuda", host="here")
    assert plan.raised(ORDER, out_of_memory) == [Shrink(ORDER), Forget("p")]
    assert plan.raised(ALONE, out_of_memory) == [Shrink(ALONE), Fail(ALONE, "CUDA out of memory", "cuda", "here")]
    assert plan.lost(ALONE, OUT_OF_MEMORY, 1) == []


def test_a_sweep_stops_where_trainers_are_lost_and_no_pack_gets_further() -> None:
    plan = _plan()
    orders = [PackOrder(f"{number}", TASKS) for number in range(25)]
    *before, last = [plan.lost(order, LOST, n_trainers=2) for order in orders]
    assert before == [[]] * 24
    assert [type(each) for each in last] == [Stop]
    # The pack itself may not be at fault, and stays as its checkpoint has it.
    assert len(_to_continue(plan)) == 24


def test_a_sweep_stops_where_too_many_trainings_fail_or_all_of_the_first() -> None:
    failed = Fail(ALONE, "ValueError: no", "cpu", "here")
    plan = _plan(max_failures=1)
    assert plan.raised(ALONE, RAISED) == [failed]
    limit = "2 trainings failed, more than --max-failures 1; the last:\nValueError: no"
    assert plan.raised(ALONE, RAISED) == [failed, Stop(limit)]
    plan = _plan()
    *before, last = [plan.raised(ALONE, RAISED) for _ in range(16)]
    assert before == [[failed]] * 15
    assert [last[0], type(last[1])] == [failed, Stop]
    plan = _plan()
    plan.trained(ALONE)
    assert [plan.raised(ALONE, RAISED) for _ in range(20)] == [[failed]] * 20


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


class Hungry(CategoryPairs):
    """System P on a GPU whose memory holds 20 trainings."""

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        if len(lanes.trainings) > 20:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().batch(lanes, step)


@pytest.mark.slow
def test_packs_that_do_not_fit_into_a_gpu_are_halved_and_no_such_pack_is_made_again(
    no_mlflow: None, tmp_path: Path
) -> None:
    spec = sweeps.small_sweep(trials=40, workload=f"{__name__}:Hungry")
    spec = spec.but(space=dict(spec.space) | {"optimizer": "sgd", "n_steps": 5})
    summary = sweeps.run(spec, tmp_path / "s")
    assert (summary.finished, summary.n_failed) == (True, 0)
    sizes = Ledger(tmp_path / "s").trainings(columns=["pack_size"])["pack_size"].to_pylist()
    # The first pack of 64 became four of 16, and all later packs are no larger than that.
    assert {*sizes[:64]} == {16}
    assert max(sizes) == 16
