"""The journal's seals: no byte changes unnoticed; what older versions and other programs wrote is read as before.

The journal's file: on a disk that refuses a write, and beside processes that held its lock.
"""

import errno
import io
import os
from io import FileIO
from pathlib import Path

import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from attnsweep.orchestrator.audit.check_files import check_journal
from attnsweep.orchestrator.running import journal as journal_module
from attnsweep.orchestrator.running.journal import JournalFile
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces import Categorical, Float, Sweep
from attnsweep.search_spaces.sweep import Sampler
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import folder_of
from tests.refusals import refused


def _swept(path: Path, sampler: Sampler, *, with_notes: bool = False) -> SweepDirectory:
    """A sweep of three trials, one of them refused; with two notes of another program before its last lines."""
    spec = Sweep(
        name="s",
        workload="category_pairs",
        space={"init_sigma": Float(low=1e-4, high=1.0, log=True), "optimizer": Categorical(choices=("sgd", "adam"))},
        sampler=sampler,
        trials=3,
        seed=5,
    )
    directory = SweepDirectory.create(path, spec, {})
    study = Study(directory)
    for _ in range(2):
        study.tell(study.ask().trial, 0.5)
    study.save()
    if with_notes:
        _write_notes(directory)
    study.refuse(study.ask().trial, "no")
    study.save()
    return directory


def _write_notes(directory: SweepDirectory) -> None:
    storage = JournalStorage(JournalFileBackend(str(folder_of(directory) / STUDY_FILE)))
    study = storage.get_study_id_from_name(directory.sweep)
    storage.set_study_system_attr(study, "dashboard:note", "mine")
    storage.set_study_user_attr(study, "note", "promising")


def _said(directory: SweepDirectory) -> tuple[str, list[str]]:
    [check] = check_journal(directory, finished=True)
    return check.line, [str(problem) for problem in check.problems]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_every_byte_that_changes_is_noticed(sampler: Sampler, tmp_path: Path) -> None:
    directory = _swept(tmp_path / "s", sampler, with_notes=True)
    assert isinstance(directory.place, LocalFolder)
    file = JournalFile(directory.place, STUDY_FILE)
    file.load()
    # A last line of ours that looks as one of another program without its digest.
    file.append(['{"op_code":8,"worker_id":"attnsweep","trial_id":2,"user_attr":{"refused":"no"}}'])
    journal = tmp_path / "s" / STUDY_FILE
    content = journal.read_bytes()
    assert _said(directory)[1] == []
    unnoticed = []
    for index in range(len(content)):
        changed = bytearray(content)
        changed[index] ^= 1
        journal.write_bytes(changed)
        if not _said(directory)[1]:
            unnoticed.append(index)
    assert unnoticed == []


def test_a_changed_journal_is_not_continued(tmp_path: Path) -> None:
    directory = _swept(tmp_path / "s", "random")
    journal = tmp_path / "s" / STUDY_FILE
    content = journal.read_bytes().replace(b'"no"', b'"on"')
    journal.write_bytes(content)
    n_lines = len(content.splitlines())
    with pytest.raises(UserError) as told:
        Study(directory)
    assert (told.value.subject, str(n_lines - 1) in str(told.value.given)) == (str(journal), True)
    assert len(_said(directory)[1]) == 1
    assert journal.read_bytes() == content


def test_notes_are_counted_and_other_lines_are_a_fault(tmp_path: Path) -> None:
    directory = _swept(tmp_path / "s", "random", with_notes=True)
    journal = tmp_path / "s" / STUDY_FILE
    n_lines = len(journal.read_text().splitlines())
    assert _said(directory)[1] == []
    _write_notes(directory)
    assert _said(directory)[1] == []
    with journal.open("a") as file:
        file.write('{"op_code":6,"worker_id":"other","trial_id":0,"state":1,"values":[0.5]}\n')
    assert [f": {n_lines + 3};" in problem for problem in _said(directory)[1]] == [True]


class _Refusing(FileIO):
    """A file on a disk that takes one byte, then writes the rest and says that it has not."""

    n_written = 0

    def write(self, content: object) -> int:
        self.n_written += 1
        if self.n_written == 1:
            return super().write(memoryview(content)[:1])  # type: ignore[arg-type]
        super().write(content)  # type: ignore[arg-type]
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def _open_refusing(path: Path, mode: str, buffering: int = -1) -> io.IOBase:
    raw = _Refusing(path, mode.replace("b", ""))
    return raw if buffering == 0 else io.BufferedRandom(raw)


def test_what_a_disk_refused_after_it_was_written_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JournalFile(LocalFolder(tmp_path), STUDY_FILE)
    journal.load()
    journal.append(['{"n":1}'])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", _open_refusing)
        with refused("study.journal", StoreError):
            journal.append(['{"n":2}'])
    resumed = JournalFile(LocalFolder(tmp_path), STUDY_FILE)
    assert [line[:6] for line in resumed.load()] == ['{"n":1', '{"n":2']
    resumed.append(['{"n":3}'])
    assert len(JournalFile(LocalFolder(tmp_path), STUDY_FILE).load()) == 3


@pytest.mark.parametrize("target", [STUDY_FILE, f"sweeps/first/{STUDY_FILE}", "/gone/study.journal"])
def test_the_lock_of_a_process_that_was_killed_is_taken_over_wherever_it_leads(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_STALE_SECONDS", 0.0)
    (tmp_path / f"{STUDY_FILE}.lock").symlink_to(target)
    journal = JournalFile(LocalFolder(tmp_path), STUDY_FILE)
    journal.load()
    journal.append(['{"n":1}'])
    assert list(tmp_path.iterdir()) == [tmp_path / STUDY_FILE]
