"""Who works on a sweep: written into its lock, for whoever finds it taken."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a lock.

    Attributes:
        work: What it is at: run, resume, compact, mlflow-sync.
        processes: Which table of processes the pid is of: the machine since its start, and the namespace.
    """

    work: str
    host: str
    pid: int
    since: str
    processes: str | None

    @classmethod
    def this_process(cls, work: str) -> "Owner":
        """This process, which does that work from now on."""
        return cls(work, platform.node(), os.getpid(), f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S UTC}", _processes())

    @classmethod
    def from_json(cls, text: str) -> "Owner | None":
        """What `to_json` wrote; `None` for what it did not, or not to its end."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def to_json(self) -> str:
        """The owner as one line."""
        return json.dumps(asdict(self))

    @property
    def is_dead(self) -> bool:
        """Whether it was a process of this machine that has ended."""
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
    """A sweep that another process works on."""


def taken(place: str, owner: Owner | None, fix: str) -> TakenError:
    """The refusal of a second who wants to work on a sweep."""
    who = f" ({owner.work}, pid {owner.pid} on {owner.host}, since {owner.since})" if owner else ""
    return TakenError(place, given=f"a sweep that another process works on{who}", expected="one at a time", fix=fix)


def _processes() -> str | None:
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{start}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return None
