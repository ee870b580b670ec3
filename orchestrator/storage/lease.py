"""The lock of a sweep in an object store: a lease that its holder renews, free for any process once it has expired.

A process that wants the lease writes an object of its own under `.lock/`, then lists the folder, and withdraws if it
sees another's lease. Both of two processes write before listing, so at least one sees the other and withdraws. The
store needs no conditional write, but its listings must show what was written. Ages are differences between times of
the store's own clock.

The lease does not protect against a process that is suspended for longer than the lease between `confirm` and the end
of its upload, against clocks that jump, or against an object that is removed by hand.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from attnsweep.orchestrator.storage.owner import Owner, taken
from attnsweep.workloads.errors import UserError

FOLDER = ".lock"
LEASE_SECONDS = 300.0
_RENEWALS_PER_LEASE = 10
_UNDER_WAY_SECONDS = 5.0
"""After a writer was killed: by then, what it had sent is in the store or never will be."""
_FIX = f"wait until it ends, or for {LEASE_SECONDS / 60:g} minutes after it was killed"


class LeaseStore(Protocol):
    """The store that holds a lease; its text names the sweep."""

    def put_text(self, name: str, text: str) -> None:
        """Writes an object, which appears whole."""

    def read_text(self, name: str) -> str:
        """The content of an object.

        Raises:
            FileNotFoundError: If it is gone.
        """

    def texts(self, folder: str) -> dict[str, datetime]:
        """The objects of a folder, with the store's own time of each."""

    def remove(self, folder: str, files: Collection[str]) -> None:
        """Removes objects of a folder."""


class ObjectLock:
    """A held lease on a sweep; a thread renews it until `close`.

    Raises:
        UserError: If another process holds it.
    """

    def __init__(self, prefix: LeaseStore, work: str) -> None:
        self._prefix = prefix
        self._name = f"{uuid.uuid4().hex}.json"
        self._owner = Owner.this_process(work)
        self._claiming = threading.Lock()
        self._closed = threading.Event()
        self._claim()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def confirm(self) -> None:
        """Returns if the lease still runs, or could be had again.

        Raises:
            UserError: If another process has taken it.
        """
        with self._claiming:
            if not self._runs():
                self._claim()

    def close(self) -> None:
        """Gives the lease back. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        # A lease that cannot be removed expires.
        with contextlib.suppress(UserError, FileNotFoundError):
            self._prefix.remove(FOLDER, [self._name])

    def _renew(self) -> None:
        while not self._closed.wait(LEASE_SECONDS / _RENEWALS_PER_LEASE):
            # A lease that ran out may be another's by now: only `confirm` may ask for it again.
            with self._claiming, contextlib.suppress(UserError):
                if self._runs():
                    self._write()

    def _runs(self) -> bool:
        return time.time() - self._written < LEASE_SECONDS / 2

    def _write(self) -> None:
        begun = time.time()
        self._prefix.put_text(f"{FOLDER}/{self._name}", self._owner.to_json())
        self._written = begun

    def _claim(self) -> None:
        self._write()
        leases = self._prefix.texts(FOLDER)
        now = leases.pop(self._name, None)
        abandoned = []
        killed = False
        for name, written in leases.items():
            with contextlib.suppress(FileNotFoundError):
                owner = Owner.from_json(self._prefix.read_text(f"{FOLDER}/{name}"))
                age = (now - written).total_seconds() if now is not None else 0.0
                if age < LEASE_SECONDS:
                    # One of this machine that has ended: nobody waits for its lease to run out.
                    if owner is None or not owner.is_dead:
                        self._withdraw()
                        raise taken(str(self._prefix), owner, _FIX)
                    killed = True
                abandoned.append(name)
        if killed:
            time.sleep(_UNDER_WAY_SECONDS)
        with contextlib.suppress(FileNotFoundError):
            self._prefix.remove(FOLDER, abandoned)

    def _withdraw(self) -> None:
        self._written = 0.0
        with contextlib.suppress(FileNotFoundError):
            self._prefix.remove(FOLDER, [self._name])
