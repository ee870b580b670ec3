"""Files that a user names by path; on another machine, the copies that the driver has sent."""

import atexit
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from attnsweep.workloads.errors import UserError

_carried: dict[str, Path] = {}
"""Copies of what the driver has sent, by the path that the user gave."""
_folders: list[Path] = []
"""Temporary folders of this process; all but the last were removed by something else."""


def given_file(path: Path, subject: str, expected: str) -> Path:
    """The regular file at a path, or the driver's copy of it, with symbolic links resolved. To read a device or a pipe
    might never end. `subject` names the argument."""
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
    raise UserError(subject, given=str(path), expected=expected, fix=f"check the path ({reason})")


def take_over(files: Mapping[str, bytes]) -> None:
    """Writes the driver's files, by their paths there, into a temporary folder, where `given_file` finds them."""
    for path, content in files.items():
        if path not in _carried:
            _carried[path] = _folder() / f"{len(_carried)}-{Path(path).name}"
            _carried[path].write_bytes(content)


def unpacked(files: Mapping[str, bytes]) -> Path:
    """Writes files, by relative path, into a new temporary folder."""
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def _folder() -> Path:
    if not _folders or not _folders[-1].is_dir():
        _folders.append(Path(tempfile.mkdtemp(prefix="attnsweep-files-")))
        atexit.register(shutil.rmtree, _folders[-1], ignore_errors=True)
    return _folders[-1]
