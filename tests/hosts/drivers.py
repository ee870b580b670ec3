"""The driver of a sweep in a process of its own: what it says, and when."""

import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.run_records import PROGRESS


class Driver:
    """A process that runs a sweep.

    Args:
        process: Started with its output in a pipe.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.began = time.monotonic()
        self._heard: list[tuple[float, str]] = []
        self._process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.append((time.monotonic(), line.rstrip("\n")))

    @property
    def said(self) -> str:
        return "\n".join(f"{at - self.began:6.1f} {line}" for at, line in self._heard)

    def hear(self, pattern: str, seconds: float = 120, since: float = 0.0) -> float:
        """Waits for a line that matches; returns when it was said."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for at, line in list(self._heard):
                if at >= since and re.search(pattern, line):
                    return at
            if self._process.poll() is not None and not self._reader.is_alive():
                break
            threading.Event().wait(0.1)
        pytest.fail(f"not said within {seconds:g} s: {pattern}\n{self.said}")

    def wait(self, seconds: float = 300) -> int:
        """Waits for its end; returns its exit code."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the driver did not end within {seconds:g} s\n{self.said}")
        self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return self._process.returncode


def packs_under_way(path: Path, n_packs: int, seconds: float = 120) -> list[str]:
    """Waits until so many packs are trained at once, by what the driver says in the sweep directory; their names."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = PROGRESS.read_if_sound(path)
        if found is not None and len(found.packs) >= n_packs and all(pack.step > 0 for pack in found.packs):
            return [pack.pack for pack in found.packs]
        threading.Event().wait(0.1)
    pytest.fail(f"{n_packs} packs were not under way within {seconds:g} s")


def committed(path: Path, packs: list[str], since: float, seconds: float = 200) -> float:
    """Waits until the rows of all of these packs are in the ledger; seconds since then."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = Ledger(path).trainings(columns=["pack"])["pack"].to_pylist() if any(path.glob("trainings/*")) else []
        if {*packs} <= {*found}:
            return time.monotonic() - since
        threading.Event().wait(0.5)
    pytest.fail(f"the rows of {packs} were not in the ledger within {seconds:g} s")
