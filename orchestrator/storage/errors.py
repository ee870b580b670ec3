"""Errors that stop a sweep, and the rule by which a file counts as damaged rather than as unreadable for the moment.

A damaged file is missing, is no regular file, or cannot be parsed. Any other error, such as EIO, EMFILE or EACCES, says
nothing about the file's content, so the file must not be treated as lost.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from attnsweep.workloads.errors import UserError


class StoreError(UserError):
    """A disk or an object store failed or refused a request, by no fault of the user."""


class StoreMistakeError(StoreError):
    """An object store refused a request because of the user's bucket, address or credentials."""


MACHINE_ERRORS = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK}
)
"""Error numbers of faults of the machine, such as an I/O error, which would occur with any other path too."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def is_machines_fault(error: UserError) -> bool:
    """A disk or an object store that failed or is full."""
    if isinstance(error, StoreError):
        return not isinstance(error, StoreMistakeError)
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in MACHINE_ERRORS | _NO_ROOM


class SweepError(RuntimeError):
    """The sweep cannot go on. Results in the ledger stay; once the cause is repaired, `attnsweep resume` continues.

    `path` is the sweep's place, as an argument of `attnsweep resume`.
    """

    def __init__(self, message: str, path: object) -> None:
        super().__init__(message)
        self.path = path


class PoolError(RuntimeError):
    """Trainers cannot be started, or cannot go on. The message is one line."""


# These error numbers mean that a file is damaged. `None` is one of them, because pyarrow gives no number if it cannot
# parse a file.
_DAMAGE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL)
_FIXES: dict[int | None, str] = {
    errno.EACCES: "ask its owner for read access",
    errno.EPERM: "ask its owner for read access",
    errno.EMFILE: "allow more open files (ulimit -n), and repeat the command",
    errno.ENFILE: "close files of other programs, and repeat the command",
}


def is_damage(error: OSError) -> bool:
    """Whether the file itself is damaged, rather than unreadable for the moment."""
    return error.errno in _DAMAGE


def is_fault(error: OSError) -> bool:
    """Whether it is a fault of the machine, such as a full disk, which any other path would meet too."""
    return error.errno in MACHINE_ERRORS


def unreadable(file: str, error: OSError, expected: str = "a file that can be read") -> StoreError:
    """For a file that is not damaged, but cannot be opened or read now."""
    given = os.strerror(error.errno) if error.errno else str(error)
    fix = _FIXES.get(error.errno, "check its disk, and repeat the command")
    return StoreError(file, given=given, expected=expected, fix=fix)


@contextmanager
def reading(file: str) -> Iterator[None]:
    """An OSError that shows a damaged file passes unchanged; any other one becomes a StoreError."""
    try:
        yield
    except OSError as error:
        if is_damage(error):
            raise
        raise unreadable(file, error) from error
