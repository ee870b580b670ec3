"""Refuses to keep results in a session of Ray's: a job's working directory is there, and Ray deletes it."""

import re
import time
from pathlib import Path

from attnsweep.workloads.errors import UserError

_SESSION = re.compile(r"session_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+_\d+")


def new_directory(name: str, given: str | None = None) -> str:
    """The directory of a new sweep or reproduction.

    Args:
        name: Its name.
        given: The directory or URI that the user gave; `None` for `./sweeps/<name>-<time>`.

    Raises:
        UserError: If it would be in a session of Ray's.
    """
    directory = f"sweeps/{name}-{time.strftime('%Y%m%d-%H%M%S')}" if given is None else given
    if "://" not in directory:
        refuse_ray_session(Path(directory), "--dir", "give --dir with a full path, or s3://BUCKET/PREFIX")
    return directory


def refuse_ray_session(path: Path, subject: str, fix: str) -> None:
    """Refuses a path in a session of Ray's.

    Args:
        path: Where results would be kept.
        subject: The option or variable that decides it.
        fix: What to give.

    Raises:
        UserError: If a folder on the way is a session's.
    """
    if any(_SESSION.fullmatch(part) for part in _really(path).parts):
        raise UserError(
            subject,
            given=str(path.absolute()),
            expected="a place that outlives the job: this one is in a folder of Ray's session, which Ray deletes",
            fix=fix,
        )


def _really(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        # A path that leads nowhere is refused where it is used.
        return path
