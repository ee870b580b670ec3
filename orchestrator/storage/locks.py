"""The lock that gives one process the right to write to a sweep: on this machine a kernel lock (flock) on a file, which
ends with the process; for a sweep in an object store also a claim there, which expires."""

import fcntl
import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from attnsweep.orchestrator.storage.copies import LOCK_FILE, is_copy, name_of
from attnsweep.orchestrator.storage.errors import TakenError
from attnsweep.orchestrator.storage.files import refuse_link

if TYPE_CHECKING:
    from attnsweep.orchestrator.storage import object_store


class Lock:
    """Held until `close`. Raises TakenError if another process holds it.

    Args:
        work: The holder's command, for the message to others.
        file: By default the sweep's lock; another file locks a part of the work on the sweep.
    """

    def __init__(self, place: Path, work: str, file: str = LOCK_FILE) -> None:
        holder = f"{work}, pid {os.getpid()} on {platform.node()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S UTC}"
        self._claim: object_store.Claim | None = None
        self._file = refuse_link(place / file).open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with self._file:
                self._file.seek(0)
                raise TakenError(name_of(place), self._file.read()) from error
        with suppress(OSError):  # a full disk, which `attnsweep compact` is to free
            self._file.truncate(0)
            self._file.write(holder)
            self._file.flush()
        if is_copy(place):
            from attnsweep.orchestrator.storage.object_store import Claim

            try:
                self._claim = Claim(place, file, holder, holds_sweep=file == LOCK_FILE)
            except BaseException:
                self.close()
                raise

    def confirm(self) -> None:
        """Raises StoreError if another process has taken the claim: nothing more may be written."""
        if self._claim is not None:
            self._claim.confirm()

    def close(self) -> None:
        """Idempotent."""
        if self._claim is not None:
            self._claim.close()
        with suppress(OSError, ValueError):  # a name that stays does no harm
            self._file.truncate(0)
        self._file.close()
