"""What a pool of trainers does next: decided without Ray, so all that can happen to a trainer is tried here."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.messages import (
    HandedBack,
    Hardware,
    PackOrder,
    Probed,
    Progress,
    Raised,
    Report,
    TrainerLost,
)
from attnsweep.orchestrator.training.nodes import Node, Wanted
from attnsweep.orchestrator.training.pool_plan import Action, PoolPlan
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.engine.contract import Training

CPU = Hardware("cpu", "here")
ORDER = PackOrder("p", [Task(0, 0, Training(CategoryPairsParameters(), 0))])
PROBED = Probed(8, [], [0], None, "here")


def node(name: str, n_cpus: float = 1.0) -> Node:
    return Node(name, f"host-{name}", f"10.0.0.{ord(name)}", n_cpus, 0.0)


def follow(plan: PoolPlan, *nodes: Node) -> list[Action]:
    return plan.follow() if plan.see(nodes) else []


def started(plan: PoolPlan, *nodes: Node) -> list[tuple[int, str | None]]:
    """The trainers that start where these nodes are up, and nothing else is done: their numbers and nodes."""
    actions = follow(plan, *nodes)
    assert all(what == "start" for what, _ in actions)
    return [(number, plan.trainers[number].node) for _, number in actions]


def one_up() -> PoolPlan:
    """A plan with one trainer, 1 on node a, that is up."""
    plan = PoolPlan(Wanted())
    assert started(plan, node("a")) == [(1, "a")]
    assert plan.settled(1, "a", "host-a", CPU, []) == []
    return plan


def one_training() -> PoolPlan:
    plan = one_up()
    assert plan.hand_out(ORDER) == 1
    return plan


def test_a_pack_goes_to_a_machine_of_the_type_that_it_names() -> None:
    plan = PoolPlan(Wanted())
    assert started(plan, node("a"), node("b"), node("c")) == [(1, "a"), (2, "b"), (3, "c")]
    for number, machine in ((1, "old"), (2, "new"), (3, "new")):
        plan.settled(number, "abc"[number - 1], "host", Hardware("cpu", machine), [])
    assert ([each.machine for each in plan.idle], sorted(plan.machines)) == (["old", "new", "new"], ["new", "old"])
    assert plan.hand_out(replace(ORDER, machine="new")) == 2
    assert plan.hand_out(replace(ORDER, machine="gone")) == 1
    assert ([each.machine for each in plan.idle], sorted(plan.machines)) == (["new"], ["new", "old"])
    assert plan.hand_out(ORDER) == 3


def test_nodes_that_come_get_trainers_and_those_that_go_lose_them() -> None:
    plan = PoolPlan(Wanted(), n_nodes=2)
    assert follow(plan, node("a", 2)) == []
    assert plan.n_awaited == 2
    assert started(plan, node("a", 2), node("b")) == [(1, "a"), (2, "a"), (3, "b")]
    assert (plan.n_awaited, plan.n_trainers, plan.n_placed, plan.has_idle) == (0, 3, 0, False)
    for number in (1, 3):
        plan.settled(number, "a" if number == 1 else "b", "host", CPU, [])
    assert follow(plan, node("a", 2), node("b")) == []
    assert plan.hand_out(ORDER) == 1
    # Node a goes with a trainer that trains and one that has not started; b stays.
    assert follow(plan, node("b")) == [("end", 2)]
    assert plan.running == [ORDER]
    assert plan.reported(1, Progress(25, b"state")) == (Progress(25, b"state"), [("hand back", 1)])
    assert plan.reported(1, HandedBack(b"state")) == (HandedBack(b"state"), [("end", 1)])
    assert (plan.running, plan.n_placed, plan.has_idle) == ([], 1, True)
    assert started(plan, node("a"), node("b")) == [(4, "a")]
    joined, left = "joined the cluster: host-", "left the cluster: host-"
    assert plan.record.notices() == [f"{joined}b", f"{left}a", f"{joined}a"]


def test_trainers_that_fit_nowhere_are_asked_of_ray_but_on_no_node_that_is_given_up() -> None:
    plan = PoolPlan(Wanted(3, 3))
    nodes = node("a"), node("b")
    assert started(plan, *nodes) == [(1, "a"), (2, "b"), (3, None)]
    assert plan.settled(1, "a", "host-a", CPU, ["torch 1 -> 2"]) == [("end", 1)]
    assert started(plan, *nodes) == [(4, None)]
    assert list(plan.record.refused) == ["a"]
    assert plan.n_trainers == 1
    # Ray has found a place for one, which says where it is.
    plan.settled(3, "c", "host-c", CPU, [])
    assert plan.n_trainers == 2
    assert follow(plan, *nodes, node("c")) == []


def test_a_pack_goes_on_until_it_ends_and_waits_where_it_is_to_be_told_who_is_pruned() -> None:
    plan = one_training()
    assert not plan.has_idle
    assert plan.reported(1, Progress(25)) == (Progress(25), [("go on", 1)])
    assert plan.reported(1, PROBED) == (PROBED, [])
    assert (plan.running, plan.is_training) == ([ORDER], False)
    assert plan.answered("p") == 1
    assert plan.is_training
    raised = Raised("ValueError", out_of_memory=False, device="cpu", host="host-a")
    assert plan.reported(1, raised) == (raised, [])
    assert (plan.running, plan.has_idle) == ([], True)


def test_all_packs_are_handed_back_undecided_at_the_end_and_no_trainer_starts() -> None:
    plan = one_training()
    plan.is_closing = True
    assert plan.reported(1, PROBED) == (Progress(8, None, 1, "here"), [("hand back", 1)])
    assert follow(plan, node("a"), node("b")) == []
    assert plan.reported(1, HandedBack(None)) == (HandedBack(None), [])
    assert plan.has_idle


def test_a_trainer_whose_gpu_context_is_broken_is_replaced() -> None:
    plan = one_training()
    raised = Raised("RuntimeError: CUDA error: device-side assert", False, "cuda", "host-a")
    assert plan.reported(1, raised) == (raised, [("end", 1)])
    assert started(plan, node("a")) == [(2, "a")]


def test_a_machine_that_cannot_compile_is_given_up_and_no_training_has_failed() -> None:
    plan = one_training()
    raised = Raised("a full disk", False, "cpu", "host-a", cannot_compile=True)
    assert plan.reported(1, raised) == (TrainerLost("a full disk", out_of_memory=False), [("end", 1)])
    assert plan.running == []
    with pytest.raises(PoolError, match=r"^no node of the cluster can train: host host-a: a full disk$"):
        follow(plan, node("a"))


def test_a_trainer_that_dies_is_replaced_where_its_node_is_still_up() -> None:
    plan = one_training()
    assert plan.lost(1) == [("end", 1)]
    assert (plan.running, plan.is_training) == ([], False)
    assert started(plan, node("a")) == [(2, "a")]
    plan.lost(2)
    assert started(plan, node("b")) == [(3, "b")]


@pytest.mark.parametrize(("n_up", "said"), [(0, "host host-a is not used"), (1, "host host-a trains with 1 trainers")])
def test_a_node_where_trainers_do_not_start_is_given_up_or_gets_no_more(n_up: int, said: str) -> None:
    plan = PoolPlan(Wanted(most=2))
    nodes = node("a", 2), node("b", 0)
    follow(plan, *nodes)
    for number in range(1, 1 + n_up):
        plan.settled(number, "a", "host-a", CPU, [])
    # Of a node that has gone meanwhile nothing is counted.
    assert plan.not_started(2, "its node has died", has_lost_its_node=True) == [("end", 2)]
    for _ in range(3):
        follow(plan, *nodes)
        last = max(plan.trainers)
        assert plan.not_started(last, "OSError: no room", has_lost_its_node=False) == [("end", last)]
    (notice,) = plan.record.notices()
    assert notice.startswith(said)
    assert notice.endswith("OSError: no room")
    if n_up:
        assert follow(plan, *nodes) == []


def test_a_trainer_without_a_node_that_does_not_start_counts_against_the_one_that_ray_names() -> None:
    plan = PoolPlan(Wanted(1, 1))
    nodes = node("a", 0), node("b", 0)
    for _ in range(3):
        follow(plan, *nodes)
        plan.not_started(max(plan.trainers), "ValueError: worse (ip=10.0.0.98)", has_lost_its_node=False)
    assert list(plan.record.refused) == ["b"]


_EVENTS = st.sampled_from(
    ["nodes", "settled", "not started", "hand out", "progress", "probed", "answer", "end", "lost"]
)


@given(st.lists(st.tuples(_EVENTS, st.integers(0, 7)), max_size=60))
def test_whatever_happens_each_pack_comes_back_once_and_each_trainer_starts_and_ends_once(
    events: list[tuple[str, int]],
) -> None:
    plan, n_packs = PoolPlan(Wanted(0)), 0
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

    for what, chosen in events:
        trainers = plan.trainers
        waiting = [n for n, each in trainers.items() if not each.is_up]
        asked = [*plan._at_probe.values()]
        busy = [n for n, each in trainers.items() if each.order is not None and n not in asked]
        number = next(iter(waiting if what in ("settled", "not started") else busy), 0)
        order = trainers[number].order if number else None
        if what == "nodes" and not asked:
            do(follow(plan, *(node(name) for at, name in enumerate("abc") if chosen >> at & 1)))
        elif what == "settled" and number:
            do(plan.settled(number, trainers[number].node or "a", "host", CPU, []))
        elif what == "not started" and number:
            do(plan.not_started(number, "", has_lost_its_node=True))
        elif what == "hand out" and plan.has_idle:
            n_packs += 1
            out.append(f"{n_packs}")
            assert plan.hand_out(replace(ORDER, pack=out[-1])) in alive
        elif what == "answer" and asked:
            assert plan.answered(next(iter(plan._at_probe))) in alive
        elif order is not None:
            reports: dict[str, Report] = {"progress": Progress(1), "probed": PROBED, "end": HandedBack(None)}
            if what == "lost":
                do(plan.lost(number))
            elif what in reports:
                do(plan.reported(number, reports[what])[1])
            if what in ("lost", "end"):
                out.remove(order.pack)
        assert sorted(order.pack for order in plan.running) == sorted(out)
        assert alive == set(plan.trainers)
