"""Processes that write to MLflow, as the driver sees them: started ahead, and kept for what it has to write next, since
MLflow takes seconds to import.

Both sides write lines of JSON. The driver asks for one piece of work at a time (`follow` or `report`), with the working
directory and the environment variables that MLflow reads. `true` or `false` ends the first, in haste or not. The
process answers with its `State` as that changes, and at last with `Ended`. It ends when the driver's end of the pipe is
closed, as a kill closes it.
"""

import atexit
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROGRAM = """import gc, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
# As the console script does: MLflow's modules hold no garbage.
gc.set_threshold(50_000)
from attnsweep.orchestrator.importing import importing
with importing(without=("pandas", "polars")):
    from attnsweep.orchestrator.tracking.process import main
main()
"""


@dataclass(frozen=True, slots=True)
class State:
    """How far a store of runs is behind a ledger.

    Attributes:
        n_present: Complete trials that it had before.
        n_logged: Trials logged since.
        n_missing: Complete trials that it lacks, of those that were found when the ledger was last looked at.
        problem: Why it does not have everything, in one line; `None` while all is well.
    """

    n_present: int = 0
    n_logged: int = 0
    n_missing: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """That a piece of work has ended: why it failed, in one line; `None` if it did not."""

    ended: str | None


class LostError(Exception):
    """The process has ended, or is of other code than this one: it was changed under a running sweep."""


class WritingProcess:
    """A process that runs `tracking.process`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # -P: a user's file beside the sweep must not pass for a library.
            [sys.executable, "-P", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The status it ended with; `None` while it runs."""
        return self._process.poll()

    def ask(self, work: str, **given: object) -> None:
        """Asks for a piece of work. Not by arguments of the process, which all can read: a URI may hold a password."""
        self.write({"work": work, "given": given, "folder": str(Path.cwd()), "variables": dict(os.environ)})

    def write(self, message: object) -> None:
        """Writes a line, unless the process has ended: `read` says so."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def read(self) -> State | Ended:
        """What it says next; waits for it.

        Raises:
            LostError: If it says nothing more, or what this code does not understand.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            answer: dict[str, Any] = json.loads(line)
            return Ended(**answer) if "ended" in answer else State(**answer)
        except (ValueError, TypeError):
            if line:
                self.kill()
            unclear = "gave an answer that is not understood, and " if line else ""
            raise LostError(f"its process {unclear}ended with status {self._process.wait()}") from None

    def kill(self) -> None:
        """Kills it."""
        self._process.kill()

    def end(self) -> None:
        """Kills it, if it has not ended, and frees its pipes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.kill()
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


_idle: list[WritingProcess] = []
_taking = threading.Lock()
"""Held while one is taken from the list: sweeps may run in several threads."""


def idle_or_new() -> WritingProcess:
    """A process with nothing to do."""
    with _taking:
        while _idle:
            process = _idle.pop()
            if process.status is None:
                return process
            process.end()
    return WritingProcess()


def start_ahead() -> None:
    """Starts a process for `idle_or_new`, unless there is one: it imports MLflow while the caller does other things."""
    keep(idle_or_new())


def keep(process: WritingProcess) -> None:
    """Keeps a process that has nothing to do, until `idle_or_new` returns it or this process ends."""
    _idle.append(process)


@atexit.register
def end_idle_processes() -> None:
    """Ends the processes that have nothing to do."""
    while _idle:
        _idle.pop().end()
