"""Errors that stop a running sweep. The module imports nothing heavy."""

import errno

from attnsweep.workloads.errors import UserError


class StoreError(UserError):
    """A disk or an object store failed or refused a request: a fault of the machine."""


class StoreMistakeError(StoreError):
    """An object store refused a request because of the user's configuration: a bucket, an address, credentials."""


MACHINE_ERRORS = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK}
)
"""Error numbers of faults of the machine, which another path would not avoid."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def is_machines_fault(error: UserError) -> bool:
    """Returns whether an error was caused by the machine: a disk or an object store that failed or is full."""
    if isinstance(error, StoreError):
        return not isinstance(error, StoreMistakeError)
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in MACHINE_ERRORS | _NO_ROOM


class SweepError(RuntimeError):
    """The sweep cannot go on. Committed rows stay; `attnsweep resume` continues once the cause is repaired.

    Args:
        message: What happened.
        path: The sweep's place, as an argument of `attnsweep resume`.
    """

    def __init__(self, message: str, path: object) -> None:
        super().__init__(message)
        self.path = path


class PoolError(RuntimeError):
    """Trainers cannot be started, or the pool cannot go on. The message is one line."""
