"""Tells a damaged file from a file that cannot be read now: the rule for all files of a sweep in a folder.

A damaged file is missing, is no regular file, or cannot be parsed. Any other error, such as EIO, EMFILE or EACCES, says
nothing about the file's content, so the file must not be treated as lost.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from attnsweep.orchestrator.storage.errors import MACHINE_ERRORS, StoreError

# `None` is included, because pyarrow raises an OSError without an error number for a file that it cannot parse.
_DAMAGE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL)
_FIXES: dict[int | None, str] = {
    errno.EACCES: "ask its owner for read access",
    errno.EPERM: "ask its owner for read access",
    errno.EMFILE: "allow more open files (ulimit -n), and repeat the command",
    errno.ENFILE: "close files of other programs, and repeat the command",
}


def is_damage(error: OSError) -> bool:
    """Returns whether an error that occurred while a file was read means that the file is lost."""
    return error.errno in _DAMAGE


def is_fault(error: OSError) -> bool:
    """Returns whether an error is a fault of the machine, which would occur with another path too."""
    return error.errno in MACHINE_ERRORS


def unreadable(file: str, error: OSError, expected: str = "a file that can be read") -> StoreError:
    """Returns the error for a file that cannot be read at the moment."""
    given = os.strerror(error.errno) if error.errno else str(error)
    fix = _FIXES.get(error.errno, "check its disk, and repeat the command")
    return StoreError(file, given=given, expected=expected, fix=fix)


@contextmanager
def reading(file: str) -> Iterator[None]:
    """A context for opening and reading a file. An OSError that leaves the context means that the file is damaged.

    Raises:
        StoreError: If the file cannot be read now.
    """
    try:
        yield
    except OSError as error:
        if is_damage(error):
            raise
        raise unreadable(file, error) from error
