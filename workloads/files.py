"""Files that a user names by path, such as corpora: on this machine, or carried here from the driver's."""

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from attnsweep.workloads.errors import UserError

_PREFIX = "attnsweep-files-"
_carried: dict[str, Path] = {}
"""Where a carried file's content is on this machine, by the path that the user gave."""


def given_file(path: Path, subject: str, expected: str, fix: str = "check the path") -> Path:
    """The regular file at a path, its links followed. Devices and pipes are refused: reading one may never end.

    On a worker of a cluster it is the driver's file of this path, if the driver has sent one.

    Args:
        path: The path that the user gave.
        subject: The argument whose value the path is.
        expected: What kind of file is expected.
        fix: What to do if there is no such file.

    Raises:
        UserError: If there is no such file.
    """
    try:
        found = _carried.get(str(path), path).resolve(strict=True)
        if stat.S_ISREG(found.stat().st_mode):
            return found
        reason = "Is a directory" if found.is_dir() else "it is no regular file"
    except OSError as error:
        reason = error.strerror or str(error)
    except (RuntimeError, ValueError) as error:
        # Links that lead in a circle; a name that no file can have.
        reason = str(error)
    raise UserError(subject, given=str(path), expected=expected, fix=f"{fix} ({reason})")


def take_over(files: Mapping[str, bytes]) -> None:
    """Keeps the driver's files on this machine for this process; `given_file` finds them by their paths there.

    Args:
        files: Content by absolute path on the driver's machine.
    """
    for path, content in files.items():
        if path not in _carried:
            _carried[path] = _folder() / f"{len(_carried)}-{Path(path).name}"
            _carried[path].write_bytes(content)


def _folder() -> Path:
    if _carried and (folder := next(iter(_carried.values())).parent).is_dir():
        return folder
    _remove_abandoned()
    while True:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Another process may find it before its lock is taken.
        with suppress(FileNotFoundError):
            if _take_lock(os.open(made, os.O_RDONLY)) and made.is_dir():
                atexit.register(shutil.rmtree, made, ignore_errors=True)
                return made


def _remove_abandoned() -> None:
    """Removes what processes have left that were killed, which is how Ray ends a trainer: nobody holds their locks."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Other users' folders cannot be opened.
        with suppress(OSError):
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if _take_lock(opened):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(opened)


def _take_lock(opened: int) -> bool:
    """Locks an opened folder until it is closed or this process ends; returns `False` if another has the lock."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
