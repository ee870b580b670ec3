"""The database that a sweep may name for its study, in the place of its directory's journal."""

from pathlib import Path

import optuna
from sqlalchemy import make_url

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import SpecError


def check_storage(spec: Sweep) -> None:
    """Opens the sweep's own storage, if it names one, before anything is written.

    Raises:
        SpecError: If Optuna cannot open it, or if it means another file in another folder.
    """
    if spec.storage is None:
        return
    try:
        database = _file_of(spec.storage)
        if database is None or database.is_absolute():
            optuna.storages.get_storage(spec.storage)
            return
    except Exception as error:  # Each storage raises errors of its own library.
        reason = without_credentials(str(error)).partition("\n")[0]
        raise SpecError(
            "storage",
            given=without_credentials(spec.storage),
            expected="an Optuna storage URL that can be opened",
            fix=f"check it, or leave it out ({type(error).__name__}: {reason})",
        ) from error
    raise SpecError(
        "storage",
        given=spec.storage,
        expected="an absolute path, since the sweep may be continued in another folder",
        fix=f"set storage=sqlite:///{database.absolute()}",
    )


def check_database(storage: str) -> None:
    """Checks that an SQLite database is there, because to open it would make it.

    Raises:
        FileNotFoundError: If it is not.
    """
    if (database := _file_of(storage)) is not None and not database.exists():
        raise FileNotFoundError(f"there is no database {database.absolute()}")


def _file_of(storage: str) -> Path | None:
    """The file of an SQLite database; `None` for another storage."""
    url = make_url(storage)
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None
