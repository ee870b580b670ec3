"""Packs: what may share one, and what becomes of one that comes back. No disk, no trainer."""

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from attnsweep.orchestrator.running.plan import Backlog, Fail, Forget, PackSizer, Shrink, Stop, SweepPlan
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import PackOrder, Raised, TrainerLost
from attnsweep.orchestrator.training.tasks import Shape, Task, tasks_of
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.engine.contract import Training

SWEEP = Sweep(name="s", workload="category_pairs", space={}, trials=100)
TASKS = [Task(0, replicate, Training(CategoryPairsParameters(), replicate)) for replicate in range(3)]
ORDER, ALONE = PackOrder("p", TASKS), PackOrder("q", TASKS[:1])
RAISED = Raised("ValueError: no", out_of_memory=False, device="cpu", host="here")
LOST, OUT_OF_MEMORY = TrainerLost("gone", out_of_memory=False), TrainerLost("killed", out_of_memory=True)

DIRECTORY = SweepDirectory(
    place=Path("s"),
    sweep="s",
    given=SWEEP,
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
