"""Processes that write to MLflow: started by the driver, and kept for what it has to log next, since MLflow takes
seconds to import."""

import atexit
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PROGRAM = """import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from attnsweep.orchestrator.importing import importing
with importing(without=("pandas", "polars")):
    from attnsweep.orchestrator.tracking.process import main
main()
"""

_OF_LIBRARIES = ("RAY_", "PYTHONBREAKPOINT", "TORCH", "MKL_")


@dataclass(frozen=True)
class Surroundings:
    """The working directory and environment variables in which a process was started, and which MLflow reads.

    Not the variables that Ray and PyTorch set where they start: a process may be started before.
    """

    folder: Path
    variables: dict[str, str]

    @staticmethod
    def current() -> "Surroundings":
        """Those of this process."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(_OF_LIBRARIES)}
        return Surroundings(Path.cwd(), variables)


class WritingProcess:
    """A process that runs `tracking.process`.

    Attributes:
        requests: The pipe to it.
        answers: The pipe from it.
    """

    requests: IO[str]
    answers: IO[str]

    def __init__(self) -> None:
        self._surroundings = Surroundings.current()
        self._process = subprocess.Popen(
            # -P: a user's file beside the sweep must not pass for a library.
            [sys.executable, "-P", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.requests, self.answers = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The status it ended with; `None` while it runs."""
        return self._process.poll()

    def fits(self, surroundings: Surroundings) -> bool:
        """Whether it runs, and would read the same settings as a process that is started in these surroundings."""
        return self.status is None and self._surroundings == surroundings

    def wait(self) -> int:
        """Waits until it has ended; its status."""
        return self._process.wait()

    def kill(self) -> None:
        """Kills it."""
        self._process.kill()

    def end(self) -> None:
        """Kills it, if it has not ended, and frees its pipes."""
        self.kill()
        with suppress(OSError):
            self.requests.close()
        self.wait()
        self.answers.close()


_idle: list[WritingProcess] = []
_taking = threading.Lock()
"""Held while one is taken from the list: sweeps may run in several threads."""


def idle_or_new() -> WritingProcess:
    """A process with nothing to do, which reads the same settings as this one. Those with other settings are ended."""
    surroundings = Surroundings.current()
    with _taking:
        for each in _idle:
            if each.fits(surroundings):
                _idle.remove(each)
                return each
        # They read settings that have changed since.
        end_idle_processes()
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
