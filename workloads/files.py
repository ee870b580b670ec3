"""Files that a user names by path, such as corpora: on this machine, or carried here from the driver's."""

import atexit
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from attnsweep.workloads.errors import UserError

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
    made = tempfile.mkdtemp(prefix="attnsweep-files-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)
