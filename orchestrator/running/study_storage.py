"""Opens the storage of a sweep's study: the journal in its directory, or a database that the sweep names."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optuna.storages import BaseStorage, JournalStorage, get_storage
from sqlalchemy import make_url

from attnsweep.orchestrator.running.journal import JournalFile, StudyLog
from attnsweep.orchestrator.running.journal_pieces import JournalPieces
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import SpecError, UserError


def check_storage(spec: Sweep) -> None:
    """Opens the study's storage if the sweep names one, so that an error appears before anything is written.

    Raises:
        SpecError: If Optuna cannot open it, or if its path is relative and so depends on the current folder.
    """
    if spec.storage is None:
        return
    try:
        database = _file_of(spec.storage)
        if database is None or database.is_absolute():
            get_storage(spec.storage)
            return
    # Each storage library raises its own kinds of errors, so all exceptions are caught here.
    except Exception as error:
        reason = without_credentials(str(error)).partition("\n")[0]
        raise SpecError(
            "storage",
            given=without_credentials(spec.storage),
            expected="the URL of an Optuna storage that can be opened",
            fix=f"check the URL, or leave out the field storage; the error is {type(error).__name__}: {reason}",
        ) from error
    raise SpecError(
        "storage",
        given=spec.storage,
        expected="the absolute path of a database, because the sweep may be continued from another folder",
        fix=f"set storage=sqlite:///{database.absolute()}",
    )


def check_database(storage: str) -> None:
    """Raises an error if an SQLite database does not exist, because opening it would create it.

    Raises:
        FileNotFoundError: If it does not exist.
    """
    if (database := _file_of(storage)) is not None and not database.exists():
        raise FileNotFoundError(f"the database {database.absolute()} does not exist")


def _file_of(storage: str) -> Path | None:
    """Returns the file of an SQLite database; `None` for any other kind of storage."""
    url = make_url(storage)
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def name_of(directory: SweepDirectory) -> str:
    """Returns how messages name the study: by its journal's file, or `the study` in a database."""
    return "the study" if directory.spec.storage else f"{directory.place}/{STUDY_FILE}"


def open_storage(directory: SweepDirectory) -> tuple[BaseStorage, StudyLog | None]:
    """Opens the storage of a study for writing. Returns the storage, and its journal (`None` for a database)."""
    if directory.spec.storage:
        check_database(directory.spec.storage)
        return get_storage(directory.spec.storage), None
    journal = _journal(directory)
    log = StudyLog(journal.load(), journal.append)
    return JournalStorage(log), log


def _journal(directory: SweepDirectory) -> JournalFile | JournalPieces:
    place = directory.place
    if isinstance(place, LocalFolder):
        return JournalFile(place, STUDY_FILE)
    assert isinstance(place, ObjectPrefix)
    return JournalPieces(place, STUDY_FILE)


@contextmanager
def readable(directory: SweepDirectory) -> Iterator[None]:
    """A context for reading a study. Any error of Optuna or its database becomes a UserError."""
    try:
        yield
    except UserError:
        raise
    # Each storage library raises its own kinds of errors, so all exceptions are caught here.
    except Exception as error:
        reason = without_credentials(str(error)).partition("\n")[0]
        raise UserError(
            name_of(directory),
            given=f"a study whose reading raises {type(error).__name__}: {reason}",
            expected="a study that Optuna can read",
            fix="check the study's database"
            if directory.spec.storage
            else "restore the study from a copy of the directory",
        ) from error
