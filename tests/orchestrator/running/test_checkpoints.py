"""Checkpoints in a sweep directory: one per pack, the latest; a damaged one is ignored."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.running.checkpoints import Checkpoints, Saved
from attnsweep.orchestrator.storage.copies import CHECKPOINTS
from attnsweep.orchestrator.training.messages import PackOrder
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.testing import defaults

TRAINING = Training(defaults(CategoryPairs()), 1)


def _order(pack: str, *lanes: tuple[int, int], environment: str = "now") -> PackOrder:
    tasks = [Task(trial, replicate, TRAINING) for trial, replicate in lanes]
    return PackOrder(pack, tasks, environment=environment)


def _kept(place: Path) -> None:
    checkpoints = Checkpoints(place)
    assert checkpoints.load() == []
    checkpoints.put(_order("a", (0, 0), (0, 1)), b"early")
    checkpoints.put(_order("a", (0, 0), (0, 1)), b"late")
    checkpoints.put(_order("b-2", (7, 3)), b"\x00" * 10_000)
    assert checkpoints.latest("a", "now") == b"late"
    again = Checkpoints(place)
    assert again.latest("a", "now") is None
    assert again.load() == [Saved("a", [(0, 0), (0, 1)], "now"), Saved("b-2", [(7, 3)], "now")]
    assert (again.latest("a", "now"), again.latest("b-2", "now")) == (b"late", b"\x00" * 10_000)
    # What another type of machine has begun is begun anew.
    assert again.latest("a", "elsewhere") is None
    again.remove("a")
    again.remove("a")
    assert again.latest("a", "now") is None
    assert [each.pack for each in Checkpoints(place).load()] == ["b-2"]


def test_the_last_one_of_each_pack_is_kept(tmp_path: Path) -> None:
    _kept(tmp_path)


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_wrong_bit_makes_it_as_good_as_none(tmp_path: Path, place: int) -> None:
    Checkpoints(tmp_path).put(_order("a", (0, 0)), b"state" * 100)
    (file,) = (tmp_path / CHECKPOINTS).iterdir()
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    assert Checkpoints(tmp_path).load() == []
    assert list((tmp_path / CHECKPOINTS).iterdir()) == []


def test_two_of_one_pack_as_a_kill_leaves_them_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "remove", lambda *_: None)
        checkpoints.put(_order("a", (0, 0)), b"early")
        checkpoints.put(_order("a", (0, 0)), b"late")
    assert len(list((tmp_path / CHECKPOINTS).iterdir())) == 2
    again = Checkpoints(tmp_path)
    assert [saved.pack for saved in again.load()] == ["a"]
    assert again.latest("a", "now") in (b"early", b"late")
    assert len(list((tmp_path / CHECKPOINTS).iterdir())) == 1
