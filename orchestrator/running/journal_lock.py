"""The lock of a journal's file, which `optuna-dashboard` takes too: a link beside it, `study.journal.lock`.

Not Optuna's own class: it asks the file behind the link how old the lock is. So it waits without end for a link that
leads nowhere: one whose process was killed and had named the file from another folder, or had not yet made it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STALE_SECONDS = 3.0
"""After this time the lock of a process that was killed is taken over. Appends take less."""
_LOOK_SECONDS = 0.01


@contextmanager
def locked(journal: Path) -> Iterator[None]:
    """Holds the lock. Raises OSError."""
    link = journal.with_name(f"{journal.name}.lock")
    _take(link, journal.absolute())
    try:
        yield
    finally:
        link.unlink()


def _take(link: Path, journal: Path) -> None:
    seen, since = None, time.monotonic()
    while True:
        with suppress(FileExistsError):
            link.symlink_to(journal)
            return
        with suppress(FileNotFoundError):
            found = link.lstat()
            if (found.st_ino, found.st_mtime_ns) != seen:
                seen, since = (found.st_ino, found.st_mtime_ns), time.monotonic()
            elif time.monotonic() - since > _STALE_SECONDS:
                link.unlink()
        time.sleep(_LOOK_SECONDS)
