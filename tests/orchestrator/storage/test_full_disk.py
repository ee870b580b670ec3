"""A full disk: one clear line, no half-written pack in the ledger, and resumable when there is space."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.trial import Told
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.study import open_study
from attnsweep.orchestrator.storage.files import write_text
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from tests.fault import disks
from tests.orchestrator.ledger.ledger_rows import Key, faults_of, held, open_writer, pack_rows
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.storage.limits import largest_file

SPEC_OF_STUDY = small_sweep("s", sampler="tpe", trials=400)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a dozen packs."""
    with disks.small_disk(tmp_path / "disk", 400) as root:
        yield root


def _hidden(root: Path) -> list[Path]:
    return [path for path in root.rglob(".*") if path.name != ".lock"]


@pytest.mark.slow
def test_a_disk_that_fills_up_keeps_what_was_committed_and_takes_more_once_there_is_room(small_disk: Path) -> None:
    committed: set[Key] = set()

    def fill(writer: LedgerWriter) -> None:
        for number in range(100):
            writer.commit(f"p{number}", *pack_rows(f"p{number}", [(number, 0)]))
            committed.add((number, 0))

    with open_writer(small_disk) as writer, pytest.raises(OSError, match="No space left on device"):
        fill(writer)
    assert len(committed) > 3
    found = held(small_disk)
    # The last pack is in the ledger if it fitted and only the merge after it did not.
    assert found in (committed, committed | {(len(committed), 0)})
    disks.enlarge(small_disk, 8000)
    with open_writer(small_disk) as writer:
        assert writer.set_aside == {}
        writer.commit("last", *pack_rows("last", [(2000, 0)]))
    assert held(small_disk) == found | {(2000, 0)}
    assert faults_of(small_disk) == []
    assert _hidden(small_disk) == []


def test_a_text_without_room_leaves_the_earlier_one(tmp_path: Path) -> None:
    write_text(tmp_path, "progress.json", "earlier")
    with largest_file(10), pytest.raises(OSError, match=r"progress\.json"):
        write_text(tmp_path, "progress.json", "later" * 100)
    assert (tmp_path / "progress.json").read_text() == "earlier"


def test_a_journal_without_room_is_mended_and_goes_on_as_if_there_had_been(tmp_path: Path) -> None:
    undisturbed = _asked(SweepDirectory.create(tmp_path / "undisturbed", SPEC_OF_STUDY, {}), 30)
    directory = SweepDirectory.create(tmp_path / "s", SPEC_OF_STUDY, {})
    journal = tmp_path / "s" / STUDY_FILE
    first = _asked(directory, 10)
    study = open_study(directory)
    with largest_file(journal.stat().st_size + 40), pytest.raises(OSError, match=r"study\.journal"):
        study.ask()
    # The end of a run saves again, with space available; half of the entry is already there.
    study.save()
    assert not journal.read_bytes().endswith(b"\n")
    again = open_study(directory)
    assert journal.read_bytes().endswith(b"\n")
    assert again.n_asked == 10
    assert first + _asked(directory, 20) == undisturbed


def _asked(directory: SweepDirectory, n_trials: int) -> list[object]:
    study = open_study(directory)
    asked: list[object] = []
    for _ in range(n_trials):
        trial = study.ask()
        asked.append((trial, study.values(trial)))
        study.tell(trial, Told((0.5,), {}))
    study.save()
    return asked
