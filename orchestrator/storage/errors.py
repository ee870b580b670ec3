"""Errors that stop a sweep. A disk's error stays an OSError, with the path in `filename`."""

from attnsweep.workloads.errors import UserError


class StoreError(UserError):
    """An object store failed, or another process took over the sweep or changed its study."""


class StoreMistakeError(StoreError):
    """An object store refused a request because of the user's bucket, address or credentials."""


class TakenError(UserError):
    """Another process works on the sweep; `holder` describes it."""

    def __init__(self, place: str, holder: str) -> None:
        given = "a sweep that another process works on" + (f" ({holder})" if holder else "")
        fix = "wait until that process ends, or stop it"
        super().__init__(place, given=given, expected="one process at a time", fix=fix)


class SweepError(RuntimeError):
    """The sweep cannot go on. Results in the ledger stay; once the cause is repaired, `attnsweep resume` continues.

    `path` is the sweep's place, as an argument of `attnsweep resume`.
    """

    def __init__(self, message: str, path: object) -> None:
        super().__init__(message)
        self.path = path


def in_words(error: Exception) -> str:
    """The message; of an OSError with its path."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


class PoolError(RuntimeError):
    """Trainers cannot be started, or cannot go on."""
