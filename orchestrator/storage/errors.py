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


def is_machines_fault(error: UserError) -> bool:
    """A disk or an object store that failed or is full."""
    if isinstance(error, StoreError):
        return not isinstance(error, StoreMistakeError)
    return isinstance(error.__cause__, OSError) and is_fault(error.__cause__)


class SweepError(RuntimeError):
    """The sweep cannot go on. Results in the ledger stay; once the cause is repaired, `attnsweep resume` continues.

    `path` is the sweep's place, as an argument of `attnsweep resume`.
    """

    def __init__(self, message: str, path: object) -> None:
        super().__init__(message)
        self.path = path


class PoolError(RuntimeError):
    """Trainers cannot be started, or cannot go on. The message is one line."""


# pyarrow gives no number if it cannot parse a file.
_DAMAGE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL)
_BROKEN = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_damage(error: OSError) -> bool:
    """Whether the file itself is damaged, rather than unreadable for the moment."""
    return error.errno in _DAMAGE


def is_fault(error: OSError) -> bool:
    """Whether it is a fault of the machine, such as a full disk, which any other path would meet too."""
    return error.errno in (*_BROKEN, *NO_ROOM)


def store_error(path: str, error: OSError, expected: str = "a file that can be read") -> StoreError:
    """For a file that is not damaged, but cannot be read or written now."""
    given = os.strerror(error.errno) if error.errno else str(error)
    fix = "check the disk, its free space, your access to it and the limit of open files; then repeat the command"
    return StoreError(error.filename or path, given=given, expected=expected, fix=fix)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """An OSError that shows a damaged file passes unchanged; any other one becomes a StoreError."""
    try:
        yield
    except OSError as error:
        if is_damage(error):
            raise
        raise store_error(path, error) from error
