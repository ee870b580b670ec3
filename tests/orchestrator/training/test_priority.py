"""What the drivers on one cluster tell each other, through the control store of a real Ray."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from attnsweep.orchestrator.training import priority, ray_internals
from attnsweep.orchestrator.training.nodes import Amount, Node
from attnsweep.orchestrator.training.priority import OtherSweeps

NODES = {name: Node(name, f"host-{name}", f"address-{name}", 2.0, 0.0) for name in "ab"}
DRIVER = f"process {os.getpid()} on {platform.node()}"
TELL_AND_DIE = """
import os, sys, ray
from attnsweep.orchestrator.training.priority import OtherSweeps
from attnsweep.orchestrator.training.nodes import Amount
ray.init(address=sys.argv[1], log_to_driver=False)
OtherSweeps("dead", 9).tell(1, {"a": Amount(1.0)}, {"a": Amount(2.0)})
print("told", flush=True)
sys.stdin.read()
os._exit(1)
"""


@pytest.fixture
def meet(local_ray: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], OtherSweeps]]:
    """Makes the driver's part of a sweep by name and priority; it looks whenever it is asked to."""
    monkeypatch.setattr(priority, "_LOOK_SECONDS", 0.0)
    with ExitStack() as met:
        yield lambda sweep, priority: met.enter_context(closing(OtherSweeps(sweep, priority)))


def test_what_sweeps_of_higher_priority_claim_is_theirs(meet: Callable[[str, int], OtherSweeps]) -> None:
    low, high, higher = meet("low", 0), meet("high", 1), meet("higher", 2)
    low.tell(1, {"a": Amount(1.0)}, {"a": Amount(2.0), "b": Amount(2.0)})
    high.tell(0, {}, {"a": Amount(1.0)})
    higher.tell(2, {"b": Amount(2.0)}, {"b": Amount(2.0), "a": Amount(0.5, 0.25)})
    for each in (low, high, higher):
        each.look()
    assert low.claims == {"a": Amount(1.5, 0.25), "b": Amount(2.0)}
    assert high.claims == {"a": Amount(0.5, 0.25), "b": Amount(2.0)}
    assert higher.claims == {}
    assert low.notices() == [
        f"this sweep gives way to sweep higher (priority 2, {DRIVER})",
        f"this sweep gives way to sweep high (priority 1, {DRIVER})",
    ]
    assert higher.notices() == []


def test_a_sweep_that_has_gone_claims_nothing(meet: Callable[[str, int], OtherSweeps]) -> None:
    low, high = meet("low", 0), meet("high", 1)
    high.tell(1, {"a": Amount(1.0)}, {"a": Amount(1.0)})
    low.look()
    assert low.claims
    high.close()
    low.look()
    assert (low.claims, low.waiting_for) == ({}, "")
    assert low.notices()[1:] == [f"sweep high (priority 1, {DRIVER}) no longer wants its cores"]


def test_who_has_the_cores_is_told_once(meet: Callable[[str, int], OtherSweeps]) -> None:
    first, second = meet("first", 0), meet("second", 0)
    first.tell(2, {"a": Amount(2.0), "b": Amount(1.0)}, {"a": Amount(2.0), "b": Amount(1.0)})
    wanted = {"a": Amount(1.0), "b": Amount(1.0)}
    for _ in range(2):
        second.look()
        second.compare(NODES, wanted, {"a": 1, "b": 1})
    words = f"sweep first (priority 0, {DRIVER}) has 2 trainers on 2 hosts, for 0 s"
    assert second.claims == {}
    assert second.waiting_for == words
    # On the other host there is room for both.
    assert second.notices() == [f"waiting with 1 trainer for cores: {words}"]
    second.compare(NODES, wanted, {"b": 1})
    assert second.waiting_for == ""


def test_a_killed_driver_claims_nothing(local_ray: str, meet: Callable[[str, int], OtherSweeps]) -> None:
    low = meet("low", 0)
    with subprocess.Popen(
        [sys.executable, "-c", TELL_AND_DIE, local_ray], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "told\n"
        low.look()
        assert low.claims == {"a": Amount(2.0)}
        other.communicate("")
    for _ in range(300):
        low.look()
        if not low.claims:
            break
    assert low.claims == {}
    assert ray_internals.read_notes(5.0) == {}


def test_a_note_that_cannot_be_read_is_left_alone(meet: Callable[[str, int], OtherSweeps]) -> None:
    low = meet("low", 0)
    ray_internals.put_note("another version", '{"sweep": "x", "colour": "red"}', 5.0)
    try:
        low.look()
        assert low.claims == {}
        assert list(ray_internals.read_notes(5.0)) == ["another version"]
    finally:
        ray_internals.remove_note("another version", 5.0)
