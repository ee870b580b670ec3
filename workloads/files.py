"""Finds files that a user names by path; on another machine, the copies that the driver has sent."""

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
"""Local copies of the files that the driver has sent, by the path that the user gave."""
_folders: list[Path] = []
"""The temporary folders that this process has made; all but the last were removed by something else."""


def given_file(path: Path, subject: str, expected: str, fix: str = "check the path") -> Path:
    """The regular file at a path, which is the driver's copy on another machine, with symbolic links resolved. Reading
    a device or a pipe might never end. `subject` names the argument."""
    try:
        file = _carried.get(str(path), path).resolve(strict=True)
        if stat.S_ISREG(file.stat().st_mode):
            return file
        reason = "Is a directory" if file.is_dir() else "it is not a regular file"
    except OSError as error:
        reason = error.strerror or str(error)
    except (RuntimeError, ValueError) as error:
        # `Path.resolve` raises RuntimeError for a circle of links, ValueError for a null character.
        reason = str(error)
    advice = f"{fix} ({reason})"
    raise UserError(subject, given=str(path), expected=expected, fix=advice)


def take_over(files: Mapping[str, bytes]) -> None:
    """Writes the driver's files into a temporary folder, where `given_file` finds them by their paths there."""
    for path, content in files.items():
        if path not in _carried:
            _carried[path] = _folder() / f"{len(_carried)}-{Path(path).name}"
            _carried[path].write_bytes(content)


def unpacked(files: Mapping[str, bytes]) -> Path:
    """Writes files, by relative path, into a new temporary folder. Returns the folder."""
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def _folder() -> Path:
    if _folders and _folders[-1].is_dir():
        return _folders[-1]
    _remove_abandoned()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Until it is locked, another process may take the folder for abandoned and remove it.
        with suppress(FileNotFoundError):
            if _take_lock(os.open(folder, os.O_RDONLY)) and folder.is_dir():
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                _folders.append(folder)
                return folder


def _remove_abandoned() -> None:
    """Those of killed processes, whose locks no process holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # If the folder belongs to another user, opening it raises an OSError. The folder is then left alone.
        with suppress(OSError):
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if _take_lock(opened):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(opened)


def _take_lock(opened: int) -> bool:
    """Locks a folder until this process ends; `False` if another holds the lock."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
