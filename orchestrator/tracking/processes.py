"""Starts the processes that write to MLflow for the driver, and talks to them. Importing MLflow takes seconds, so they
are kept for later requests.

Both sides write lines of JSON. The driver requests one piece of work at a time (`follow` or `report`), with the working
directory and the environment variables that MLflow reads. `true` (in haste) or `false` ends `follow`. The process
answers with its `State` whenever that changes, and finally with `Ended`. It exits when the driver's end of the pipe is
closed, which also happens when the driver is killed.
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
gc.set_threshold(50_000)
signal.signal(signal.SIGINT, signal.SIG_IGN)
from attnsweep.orchestrator.tracking.process import main
main()
"""


@dataclass(frozen=True, slots=True)
class State:
    """How many trials MLflow has and lacks; `n_present` were there before. `problem` is a line on why it lacks some."""

    n_present: int = 0
    n_logged: int = 0
    n_missing: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The work has ended; the reason if it failed."""

    ended: str | None


class LostError(Exception):
    """The process has ended, or gave an answer that cannot be understood."""


class WritingProcess:
    """A child process that runs `tracking.process`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # Because of `-P`, Python does not import a file of the user in the current folder in place of a library.
            [sys.executable, "-P", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def ask(self, work: str, **given: object) -> None:
        """Requests `follow` or `report`, in the present working directory and environment.

        The request goes through the pipe, not through the process's arguments, which all users can read: a URI may hold
        a password.
        """
        self.write({"work": work, "given": given, "folder": str(Path.cwd()), "variables": dict(os.environ)})

    def write(self, message: object) -> None:
        """If the process has ended, the next `read` reports it."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def read(self) -> State | Ended:
        """Waits for the next answer.

        Raises:
            LostError: If the process has ended, or gives an answer that this code does not understand.
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
            raise LostError(f"the MLflow process {unclear}ended with the exit status {self._process.wait()}") from None

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.kill()
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


_idle: list[WritingProcess] = []
_taking = threading.Lock()
"""Held while a process is taken from `_idle`, since sweeps may run in several threads."""


def idle_or_new() -> WritingProcess:
    with _taking:
        while _idle:
            process = _idle.pop()
            if process.status is None:
                return process
            process.end()
    return WritingProcess()


def keep(process: WritingProcess) -> None:
    """For `idle_or_new`; ended when the program exits."""
    _idle.append(process)


@atexit.register
def end_idle_processes() -> None:
    while _idle:
        _idle.pop().end()
