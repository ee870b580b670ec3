"""A file that the user names, to be read."""

import stat
from pathlib import Path

from attnsweep.workloads.errors import UserError


def given_file(path: Path, subject: str, expected: str, fix: str = "check the path") -> Path:
    """The regular file at a path, its links followed. Devices and pipes are refused: reading one may never end.

    Args:
        path: As the user gave it.
        subject: The argument that it was given for.
        expected: What kind of file.
        fix: What to do where there is none.

    Raises:
        UserError: If there is no such file.
    """
    try:
        found = path.resolve(strict=True)
        if stat.S_ISREG(found.stat().st_mode):
            return found
        reason = "Is a directory" if found.is_dir() else "it is no regular file"
    except OSError as error:
        reason = error.strerror or str(error)
    except (RuntimeError, ValueError) as error:
        # Links that lead in a circle; a name that no file can have.
        reason = str(error)
    raise UserError(subject, given=str(path), expected=expected, fix=f"{fix} ({reason})")
