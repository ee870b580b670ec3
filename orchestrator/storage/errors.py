"""Errors that stop a running sweep. The module imports nothing heavy."""

import errno

from attnsweep.workloads.errors import UserError


class StoreError(UserError):
    """Raised if a disk or an object store failed or refused a request: a fault of the machine, not of the user."""


class StoreMistakeError(StoreError):
    """Raised if an object store refused a request because of the user's configuration: bucket, address or
    credentials."""


MACHINE_ERRORS = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK}
)
"""Error numbers of faults of the machine, which another path would not avoid."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def is_machines_fault(error: UserError) -> bool:
    """Returns whether the machine caused an error: a disk or an object store that failed or is full."""
    if isinstance(error, StoreError):
        return not isinstance(error, StoreMistakeError)
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in MACHINE_ERRORS | _NO_ROOM


class SweepError(RuntimeError):
    """Raised if the sweep cannot go on. Committed rows stay, and `attnsweep resume` continues once the cause is
    repaired.

    Args:
        message: What happened.
        path: The sweep's place, as an argument of `attnsweep resume`.
    """

    def __init__(self, message: str, path: object) -> None:
        super().__init__(message)
        self.path = path


class PoolError(RuntimeError):
    """Raised if trainers cannot be started, or the pool of trainers cannot go on. The message is one line."""
