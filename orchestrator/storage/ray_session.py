"""Refuses to keep results in a folder of a Ray session, such as a job's working directory, because Ray deletes it."""

import re
import time
from pathlib import Path

from attnsweep.workloads.errors import UserError

_SESSION = re.compile(r"session_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+_\d+")


def new_directory(name: str, given: str | None = None) -> str:
    """Returns the directory for a new sweep or reproduction.

    Args:
        name: The sweep's name.
        given: The directory or URI that the user gave; `None` for `./sweeps/<name>-<time>`.

    Raises:
        UserError: If the directory would be in the folder of a Ray session.
    """
    directory = f"sweeps/{name}-{time.strftime('%Y%m%d-%H%M%S')}" if given is None else given
    if "://" not in directory:
        refuse_ray_session(Path(directory), "--dir", "give --dir with a full path, or s3://BUCKET/PREFIX")
    return directory


def refuse_ray_session(path: Path, subject: str, fix: str) -> None:
    """Raises an error for a path inside the folder of a Ray session.

    Args:
        path: Where results would be kept.
        subject: The option or variable that determines the path.
        fix: What the user can give instead.

    Raises:
        UserError: If a folder on the path belongs to a Ray session.
    """
    if any(_SESSION.fullmatch(part) for part in _resolved(path).parts):
        raise UserError(
            subject,
            given=str(path.absolute()),
            expected="a directory outside of Ray's session folder, which Ray deletes after the job",
            fix=fix,
        )


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        # A path that cannot be resolved is returned as it is, and refused where it is used.
        return path
