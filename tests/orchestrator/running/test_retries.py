"""Packs that are trained again: from where, in which halves, and how often they lost their trainer."""

import tracemalloc
from pathlib import Path

from attnsweep.orchestrator.running.backlog import Backlog
from attnsweep.orchestrator.running.checkpoints import Checkpoints
from attnsweep.orchestrator.running.retries import Retries
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.training.identity import Task
from attnsweep.orchestrator.training.messages import PackOrder
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.engine.contract import Training

TASKS = [Task(0, replicate, Training(CategoryPairsParameters(), replicate)) for replicate in range(3)]
ORDER = PackOrder("p", TASKS)


def test_a_pack_goes_on_from_its_last_checkpoint_and_its_halves_from_their_start(tmp_path: Path) -> None:
    retries = Retries(Checkpoints(LocalFolder(tmp_path)))
    for state in (b"first", b"last"):
        retries.checkpoint(ORDER, state)
    retries.again(ORDER)
    assert len(retries) == 1
    assert retries.next() == PackOrder("p", TASKS, b"last")
    retries.split(ORDER)
    assert len(retries) == 2
    assert [retries.next(), retries.next()] == [PackOrder("pa", TASKS[:1]), PackOrder("pb", TASKS[1:])]
    assert retries.next() is None
    assert Checkpoints(LocalFolder(tmp_path)).load() == []


def test_losses_are_counted_until_the_pack_gets_further(tmp_path: Path) -> None:
    retries = Retries(Checkpoints(LocalFolder(tmp_path)))
    assert [retries.count_loss("p"), retries.count_loss("other"), retries.count_loss("p")] == [1, 1, 2]
    assert retries.n_losses_in_a_row == 3
    retries.checkpoint(ORDER, b"state")
    assert retries.n_losses_in_a_row == 0
    assert [retries.count_loss("p"), retries.count_loss("other")] == [1, 2]


def test_the_driver_holds_no_state_but_that_of_the_pack_it_hands_out(tmp_path: Path) -> None:
    n_bytes = 2**22
    checkpoints = Checkpoints(LocalFolder(tmp_path), "now")
    tracemalloc.start()
    try:
        for task in TASKS:
            checkpoints.put(PackOrder(f"p{task.replicate}", [task]), bytes(n_bytes))
        assert tracemalloc.get_traced_memory()[0] < n_bytes
        retries, backlog = Retries(Checkpoints(LocalFolder(tmp_path), "now")), Backlog()
        backlog.add(TASKS)
        assert retries.restore(backlog, "now") == len(TASKS)
        retries.again(PackOrder("p9", TASKS[:1], bytes(n_bytes)))
        assert tracemalloc.get_traced_memory()[0] < n_bytes
        order = retries.next()
        assert order is not None
        assert order.checkpoint == bytes(n_bytes)
        order = order.without_state()
        assert tracemalloc.get_traced_memory()[0] < n_bytes
    finally:
        tracemalloc.stop()
