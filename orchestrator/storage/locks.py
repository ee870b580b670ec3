"""The lock that gives one process the right to write to a sweep: who owns it, and how it works in an object store, by a
lease that expires.

A lease is one object that its holder renews, and that any process may take once it has expired. It is taken, renewed
and given back by compare-and-swap: each write names the version that it replaces, and the store refuses the write if
the object has changed since. Of several concurrent processes one succeeds. A process that was suspended while another
one took the lease notices it at its next renewal.

Ages are differences between times of the store's own clock. One case is not excluded: a process that is suspended
between `confirm` and the end of its upload, for longer than the lease lasts, still writes.
"""

import contextlib
import itertools
import json
import os
import platform
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.workloads.errors import UserError

LEASE_FILE = ".ledger.lock"
"""Name of the object that is the lease in an object store, and of the lock file in a folder. An empty one means that
the sweep is not locked.
"""
LEASE_SECONDS = 300.0
_RENEWALS_PER_LEASE = 10
_UNDER_WAY_SECONDS = 5.0
"""After this many seconds, all uploads of a writer that was killed have ended."""
_FIX = f"wait until it ends, or for {LEASE_SECONDS / 60:g} minutes after it was killed"


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a sweep's lock.

    Attributes:
        work: Its command: run, resume, compact, mlflow-sync.
        processes: Identifies the table of processes in which the pid is valid: boot id and process namespace of the
            machine.
    """

    work: str
    host: str
    pid: int
    since: str
    processes: str | None

    @classmethod
    def this_process(cls, work: str) -> "Owner":
        return cls(work, platform.node(), os.getpid(), f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S UTC}", _processes())

    @classmethod
    def from_json(cls, text: str) -> "Owner | None":
        """`None` for anything but what `to_json` writes, such as an incomplete text."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def is_dead(self) -> bool:
        """Whether it ran on this machine and is not running any more."""
        if self.processes is None or self.processes != _processes():
            return False
        try:
            os.kill(self.pid, 0)
        except OSError as error:
            # Only a ProcessLookupError means that the process has ended. A PermissionError means that it is alive, but
            # belongs to another user, so that this process may not send it a signal.
            return isinstance(error, ProcessLookupError)
        return False


class TakenError(UserError):
    """Another process holds the lock."""


def taken(place: str, owner: Owner | None, fix: str) -> TakenError:
    who = f" ({owner.work}, pid {owner.pid} on {owner.host}, since {owner.since})" if owner else ""
    return TakenError(
        place, given=f"a sweep that another process works on{who}", expected="one process at a time", fix=fix
    )


def _processes() -> str | None:
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{start}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return None


class LostLeaseError(StoreError):
    """Another process has taken over the lease."""


class Versioned(NamedTuple):
    """`written`: by the store's clock."""

    text: str
    version: str
    written: datetime


class LeaseStore(Protocol):
    """An object store that can hold a lease. `str(store)` names the sweep."""

    def swap_text(self, name: str, text: str, version: str | None) -> str | None:
        """Atomic compare-and-swap: writes only if the version is still `version`; with `None`, if there is no
        object. Returns the new version; `None` if nothing was written."""

    def versioned(self, name: str) -> Versioned | None:
        """`None` if the object does not exist."""

    def now(self) -> datetime:
        """By the store's clock."""


class ObjectLock:
    """The lease of a sweep in an object store. A thread of its holder renews it until `close`.

    Raises:
        UserError: If another process holds it.
        StoreError: If the store lacks compare-and-swap.
    """

    def __init__(self, store: LeaseStore, work: str, file: str = LEASE_FILE) -> None:
        self._store = store
        self._file = file
        self._owner = Owner.this_process(work)
        self._holder = uuid.uuid4().hex
        self._renewals = itertools.count()
        self._using = threading.Lock()
        self._closed = threading.Event()
        self._take()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def confirm(self) -> None:
        """Renews a lease in its second half, even an expired one. Raises LostLeaseError if another has taken it."""
        with self._using:
            if time.time() - self._written > LEASE_SECONDS / 2:
                self._renew()

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        # Errors are ignored here. If the lease cannot be given back, it soon expires by itself. If another process has
        # taken it, that process keeps it.
        with contextlib.suppress(UserError):
            self._replace("", self._version)

    def _keep(self) -> None:
        while not self._closed.wait(LEASE_SECONDS / _RENEWALS_PER_LEASE):
            # Errors while the lease is renewed are ignored here: if they persist, `confirm` meets and reports them.
            with self._using, contextlib.suppress(UserError):
                self._renew()

    def _take(self) -> None:
        if self._store.swap_text(self._file, "", None) and self._store.swap_text(self._file, "", None):
            given = "an object store that overwrites an object although the request forbids it (If-None-Match)"
            expected = "an object store with conditional writes like those of S3"
            fix = "keep the sweep in a directory, or in another store"
            raise StoreError(str(self._store), given=given, expected=expected, fix=fix)
        lease = self._store.versioned(self._file)
        if lease is None:
            raise taken(str(self._store), None, _FIX)
        if lease.text and (self._store.now() - lease.written).total_seconds() < LEASE_SECONDS:
            owner = _owner(lease)
            # If the owner was a process of this machine that has ended, the lease can be taken before it expires.
            if owner is None or not owner.is_dead:
                raise taken(str(self._store), owner, _FIX)
            time.sleep(_UNDER_WAY_SECONDS)
        self._write(lease.version)

    def _renew(self) -> None:
        try:
            self._write(self._version)
        except TakenError as error:
            expected = "that no other process takes the sweep's lease before this run ends"
            fix = "the committed rows are kept, and the other process continues: let it end, or stop it"
            raise LostLeaseError(error.subject, given=error.given, expected=expected, fix=fix) from error

    def _write(self, version: str) -> None:
        begun = time.time()
        # Some stores use a hash of a text as the version of the text. The running number makes every text different, so
        # that every write gets a new version.
        text = f"{self._owner.to_json()}\n{self._holder} {next(self._renewals)}\n"
        self._version, self._written = self._replace(text, version), begun

    def _replace(self, text: str, version: str) -> str:
        """Returns the new version. Raises TakenError if another process has changed the object meanwhile."""
        while True:
            written = self._store.swap_text(self._file, text, version)
            if written is not None:
                return written
            # The store refuses the write if the object has changed since `version`. It may have been changed by this
            # process: if an answer of the store was lost, the client has repeated this write, or an earlier write only
            # seemed to fail.
            current = self._store.versioned(self._file)
            if current is not None and current.text == text:
                return current.version
            if current is None or not current.text.partition("\n")[2].startswith(f"{self._holder} "):
                raise taken(str(self._store), _owner(current), _FIX)
            version = current.version


def _owner(lease: Versioned | None) -> Owner | None:
    return None if lease is None else Owner.from_json(lease.text.partition("\n")[0])
