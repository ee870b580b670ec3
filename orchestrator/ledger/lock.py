"""One process at a time: a second writer would remove the first one's unfinished files, or log a trial twice."""

import fcntl
from pathlib import Path
from typing import IO

from workloads.errors import UserError


def acquire(root: Path) -> IO[bytes]:
    """Returns a held lock on a sweep's ledger. It ends with `close`, or with the process.

    Raises:
        UserError: If another process holds it, or the directory cannot be written.
    """
    try:
        file = (root / ".ledger.lock").open("wb")
    except OSError as error:
        raise UserError(
            str(root),
            given=error.strerror,
            expected="a sweep directory that can be written",
            mend="give the directory that `attnsweep run` printed, or its owner's rights",
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise UserError(
            str(root),
            given="a sweep that another process works on",
            expected="one at a time",
            mend="wait until its run, compact or mlflow-sync ends, or stop it",
        ) from error
    return file
