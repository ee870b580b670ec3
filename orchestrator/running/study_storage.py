"""Where an Optuna study is stored: a database that the sweep names, or Optuna's journal file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.files import naming, refuse_link, regular_file, upload
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces.sweep import LEARN_NOTHING, Sweep
from attnsweep.workloads.errors import SpecError, UserError


def has_study(spec: Sweep) -> bool:
    """Whether a sweep needs or names an Optuna study; without one, a trial is a function of its number."""
    return spec.sampler not in LEARN_NOTHING or spec.pruner is not None or spec.storage is not None


class Journal(JournalFileBackend):
    """Optuna's journal file. While `holds`, entries wait for the next write; `save` uploads it to an object store.

    Only the holder of the sweep's lock may open it.
    """

    holds = False

    def __init__(self, place: Path) -> None:
        self._path = refuse_link(place.absolute() / STUDY_FILE)
        self._held: list[dict[str, Any]] = []
        with naming(self._path):
            _mend(self._path)
            super().__init__(str(self._path))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self._held += logs
        if not self.holds:
            self._write()

    def save(self) -> None:
        self._write()
        upload(self._path)

    def _write(self) -> None:
        held, self._held = self._held, []  # after a write that failed, nothing is repeated
        if held:
            with naming(self._path):
                super().append_logs(held)


def _mend(path: Path) -> None:
    """Removes what a killed process leaves: Optuna's lock, for which the next one would wait 30 s, and an incomplete
    last line, to which Optuna would append the next one."""
    for left in path.parent.glob(f"{path.name}.lock*"):
        left.unlink()
    content = regular_file(path).read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


def open_storage(directory: SweepDirectory) -> tuple[BaseStorage, Journal | None]:
    """Opens a study for writing; a database has no journal."""
    if directory.spec.storage:
        _check_database(directory.spec.storage)
        return get_storage(directory.spec.storage), None
    journal = Journal(directory.place)
    return JournalStorage(journal), journal


def read_trials(directory: SweepDirectory) -> list[FrozenTrial]:
    """A study's trials, by the sweep's numbers. Writes nothing; raises UserError."""
    with readable(directory):
        if directory.spec.storage:
            _check_database(directory.spec.storage)
            storage: BaseStorage = RDBStorage(directory.spec.storage, skip_table_creation=True)
        elif (directory.place / STUDY_FILE).exists():
            storage = JournalStorage(JournalFileBackend(str(regular_file(directory.place.absolute() / STUDY_FILE))))
        else:
            raise FileNotFoundError("the file does not exist")
        trials = storage.get_all_trials(storage.get_study_id_from_name(directory.sweep), deepcopy=False)
    trials = [copy(trial) for trial in trials]
    for trial in trials:
        trial.number = directory.shard.trial(trial.number)
    return trials


@contextmanager
def readable(directory: SweepDirectory) -> Iterator[None]:
    """Any error of Optuna or its database becomes a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each storage library raises its own kinds
        raise unusable(directory, f"an Optuna study that cannot be read: {_in_words(error)}") from error


def unusable(directory: SweepDirectory, given: str, kind: type[UserError] = UserError) -> UserError:
    subject, fix = f"{directory.place}/{STUDY_FILE}", "without the file, `resume` writes it again from the ledger"
    if directory.spec.storage:
        subject, fix = "the study", "check the study's database, or restore it from a copy"
    return kind(subject, given=given, expected="the study as attnsweep wrote it", fix=fix)


def check_storage(spec: Sweep) -> None:
    """Opens the database that the sweep names, if any, before anything is written; raises SpecError."""
    if spec.storage is None:
        return
    try:
        database = _file_of(spec.storage)
        if database is None or database.is_absolute():
            get_storage(spec.storage)
            return
        fix = f"set storage=sqlite:///{database.absolute()}"
    except Exception as error:  # noqa: BLE001  # each storage library raises its own kinds
        fix = f"check the URL, or leave out the field storage; the error is {_in_words(error)}"
    # The sweep may be continued from another folder.
    expected = "the URL of an Optuna storage that can be opened, for SQLite with an absolute path"
    raise SpecError("storage", given=without_credentials(spec.storage), expected=expected, fix=fix)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: " + without_credentials(str(error)).partition("\n")[0]


def _check_database(storage: str) -> None:
    """Opening an SQLite database that does not exist would create it."""
    if (database := _file_of(storage)) is not None and not database.exists():
        raise FileNotFoundError(f"the database {database.absolute()} of the sweep's field `storage` does not exist")


def _file_of(storage: str) -> Path | None:
    """`None` for anything but SQLite."""
    from sqlalchemy import make_url  # its import takes 0.15 s

    url = make_url(storage)
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None
