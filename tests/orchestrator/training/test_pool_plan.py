"""What a pool of trainers does next: decided without Ray, so all that can happen to a trainer is tried here."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.messages import (
    HandedBack,
    PackOrder,
    Probed,
    Raised,
    Report,
    StillTraining,
    TrainerLost,
)
from attnsweep.orchestrator.training.pool_plan import Action, PoolPlan, TrainerShare
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.engine.contract import Training

CPU = "x86_64"
ORDER = PackOrder("p", [Task(0, 0, Training(CategoryPairsParameters(), 0))])
PROBED = Probed(8, [], [0], None, "here")


def started(plan: PoolPlan, n_places: int) -> list[int]:
    """The trainers that start where the cluster has so many places, and nothing else is done."""
    actions = plan.follow(["node"], n_places)
    assert all(what == "start" for what, _ in actions)
    return [number for _, number in actions]


def one_training() -> PoolPlan:
    """A plan with one trainer, 1, that is up and has a pack."""
    plan = PoolPlan()
    assert started(plan, 1) == [1]
    assert plan.settled(1, "node", "a", CPU, []) == []
    assert plan.hand_out(ORDER) == 1
    return plan


@pytest.mark.parametrize(
    ("n_gpus", "wanted", "device", "share", "n_places"),
    [
        (0, None, "auto", ("cpu", 1.0, 0.0), 16),
        (2, None, "auto", ("cuda", 0.0, 1.0), 2),
        (2, None, "cpu", ("cpu", 1.0, 0.0), 16),
        # GPUs that will come are not replaced by cores.
        (0, 2, "cuda", ("cuda", 0.0, 1.0), 0),
        # More trainers than GPUs share them; of a range, the rest waits for more.
        (2, 6, "auto", ("cuda", 0.0, 1 / 3), 6),
        (2, (1, 6), "auto", ("cuda", 0.0, 1.0), 2),
    ],
)
def test_what_each_trainer_gets(n_gpus: float, wanted: Any, device: Any, share: object, n_places: int) -> None:
    found = TrainerShare.of(n_gpus, wanted, device)
    assert found == share
    assert found.n_places(16.0, n_gpus) == n_places


@pytest.mark.parametrize(
    ("wanted", "n_places", "n_requested", "n_trainers"),
    [(None, 3, 3, 3), (None, 0, 1, 1), (5, 3, 5, 3), ((2, 4), 3, 4, 3), ((2, 4), 9, 4, 4)],
)
def test_as_many_as_wanted_are_requested(wanted: Any, n_places: int, n_requested: int, n_trainers: int) -> None:
    plan = PoolPlan(wanted)
    assert len(started(plan, n_places)) == n_requested
    assert plan.n_trainers == n_trainers


def test_by_default_the_pool_grows_and_shrinks_with_the_cluster() -> None:
    plan = PoolPlan()
    assert started(plan, 2) == [1, 2]
    plan.settled(1, "node", "a", CPU, [])
    assert started(plan, 3) == [3]
    assert plan.follow(["node"], 1) == [("end", 2), ("end", 3)]
    # An idle trainer goes with its node.
    assert plan.follow(["another"], 1) == [("end", 1), ("start", 4)]


def test_a_range_begins_with_its_least() -> None:
    plan = PoolPlan((2, 3))
    assert started(plan, 3) == [1, 2, 3]
    plan.settled(2, "node", "a", CPU, [])
    assert (plan.idle, plan.n_awaited) == ([], 2)
    plan.settled(1, "node", "a", CPU, [])
    assert plan.hand_out(ORDER) == 2
    plan.lost(2)
    assert plan.idle == [CPU]


def test_a_pack_goes_to_a_machine_of_the_type_that_it_names() -> None:
    plan = PoolPlan()
    plan.follow(["node"], 3)
    for number, machine in ((1, "old"), (2, "new"), (3, "new")):
        plan.settled(number, "node", "host", machine, [])
    assert plan.hand_out(replace(ORDER, machine="new")) == 2
    assert plan.hand_out(replace(ORDER, machine="gone")) == 1
    assert (plan.idle, sorted(plan.machines)) == (["new"], ["new", "old"])


def test_a_pack_goes_on_until_it_ends_and_waits_where_it_is_to_be_told_who_is_pruned() -> None:
    plan = one_training()
    assert plan.reported(1, StillTraining(25)) == (StillTraining(25), [("go on", 1)])
    assert plan.reported(1, PROBED) == (PROBED, [])
    assert (plan.running, plan.is_training) == ([ORDER], False)
    assert plan.answered("p") == 1
    raised = Raised("ValueError", out_of_memory=False, device="cpu", host="a")
    assert plan.reported(1, raised) == (raised, [])
    assert (plan.running, plan.idle) == ([], [CPU])


def test_all_packs_are_handed_back_undecided_at_the_end_and_no_trainer_starts() -> None:
    plan = one_training()
    plan.is_closing = True
    assert plan.reported(1, PROBED) == (StillTraining(8, None, 1, "here"), [("hand back", 1)])
    assert plan.follow(["node"], 5) == []
    assert plan.reported(1, HandedBack(None)) == (HandedBack(None), [])


@pytest.mark.parametrize(
    "report", [HandedBack(b"state"), Raised("RuntimeError: CUDA error: device-side assert", False, "cuda", "a"), None]
)
def test_a_trainer_that_leaves_breaks_or_dies_is_replaced(report: Report | None) -> None:
    plan = one_training()
    assert plan.lost(1) == [("end", 1)] if report is None else plan.reported(1, report) == (report, [("end", 1)])
    assert plan.running == []
    assert started(plan, 1) == [2]


def test_three_failed_starts_without_a_report_between_end_the_sweep_with_the_cause() -> None:
    """A start has not failed in vain if other trainers get further."""
    plan = one_training()
    started(plan, 5)
    for number in (2, 3):
        assert plan.not_started(number, "text\nOSError: no room\n") == [("end", number)]
    plan.reported(1, StillTraining(25))
    # A machine that cannot compile is a trainer lost, and its pack has not failed.
    raised = Raised("a full disk", False, "cpu", "a", cannot_compile=True)
    assert plan.reported(1, raised) == (TrainerLost("a full disk", out_of_memory=False), [("end", 1)])
    plan.settled(4, "node", "b", CPU, ["torch 1 -> 2"])
    assert plan.notices()[-1].endswith("the versions of host b differ from the driver's: torch 1 -> 2")
    with pytest.raises(PoolError, match=r"^3 trainers did not start or compile.*: OSError: no room$"):
        plan.not_started(5, "Traceback\nOSError: no room\n")


_EVENTS = st.sampled_from(["places", "settled", "hand out", "progress", "probed", "answer", "end", "lost"])


@given(st.lists(st.tuples(_EVENTS, st.integers(0, 3)), max_size=60))
def test_whatever_happens_each_pack_comes_back_once_and_each_trainer_starts_and_ends_once(
    events: list[tuple[str, int]],
) -> None:
    plan, n_packs = PoolPlan(), 0
    alive: set[int] = set()
    out: list[str] = []

    def do(actions: Sequence[Action]) -> None:
        for what, number in actions:
            if what == "start":
                assert number not in alive
                alive.add(number)
            assert number in alive
            if what == "end":
                alive.remove(number)

    for what, n_places in events:
        waiting = [n for n, each in plan.trainers.items() if not each.is_up]
        asked = [*plan._at_probe.values()]
        busy = [n for n, each in plan.trainers.items() if each.order is not None and n not in asked]
        if what == "places":
            do(plan.follow(["node"], n_places))
        elif what == "settled" and waiting:
            do(plan.settled(waiting[0], "node", "host", CPU, []))
        elif what == "hand out" and plan.idle:
            n_packs += 1
            out.append(f"{n_packs}")
            assert plan.hand_out(replace(ORDER, pack=out[-1])) in alive
        elif what == "answer" and asked:
            assert plan.answered(next(iter(plan._at_probe))) in alive
        elif what in ("progress", "probed", "end", "lost") and busy:
            order = plan.trainers[busy[0]].order
            reports: dict[str, Report] = {"progress": StillTraining(1), "probed": PROBED, "end": HandedBack(None)}
            do(plan.lost(busy[0]) if what == "lost" else plan.reported(busy[0], reports[what])[1])
            if what in ("lost", "end") and order is not None:
                out.remove(order.pack)
        assert sorted(order.pack for order in plan.running) == sorted(out)
        assert alive == set(plan.trainers)
