"""The process that works on a sweep. The sweep's lock stores it, for other processes that find the lock taken."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a lock: its command, host, process id and start.

    Attributes:
        work: The process's command: run, resume, compact, merge, gc, mlflow-sync.
        processes: The table of processes to which the pid belongs: boot id and namespace of the machine.
    """

    work: str
    host: str
    pid: int
    since: str
    processes: str | None

    @classmethod
    def this_process(cls, work: str) -> "Owner":
        """Returns the present process as an owner whose lock begins now."""
        return cls(work, platform.node(), os.getpid(), f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S UTC}", _processes())

    @classmethod
    def from_json(cls, text: str) -> "Owner | None":
        """Parses the text that `to_json` writes; returns `None` for an incomplete or any other text."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def is_dead(self) -> bool:
        """Whether the owner was a process of this machine and has ended."""
        if self.processes is None or self.processes != _processes():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


class TakenError(UserError):
    """Raised if another process has locked the sweep that this process wants to write to."""


def taken(place: str, owner: Owner | None, fix: str) -> TakenError:
    """Returns the error for a sweep that is locked by another process."""
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
