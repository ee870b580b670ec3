"""Packs that are trained again: from where, in which halves, and how often they lost their trainer."""

from pathlib import Path

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
    retries.split(ORDER)
    assert len(retries) == 3
    assert retries.next() == PackOrder("p", TASKS, b"last")
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
