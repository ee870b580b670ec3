"""The process that writes running sweeps to MLflow: what it does, and the lines that it exchanges with the driver.

Each line is one JSON object. For each sweep the driver sends a `Start`, then `{"told": [TRIAL, ...]}` and at last
`{"close": IN_HASTE}`. This process answers with a `State` whenever something has changed, at most ten times a second,
and with `{"ended": null}` when it has logged everything. To an `DrawReport` it answers `{"ended": PROBLEM}`, `null` for
none. Then it waits for what the driver sends next. It ends at once when the driver's end of the pipe is closed, as a
kill closes it. It imports neither torch nor Ray.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from queue import Empty, Full, Queue, SimpleQueue
from typing import Any, TextIO

from attnsweep.orchestrator.importing import importing
from attnsweep.orchestrator.storage.location import locate
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.report import problem_drawing
from attnsweep.orchestrator.tracking.store import can_be_made, in_one_line, set_environment, tracking_uri
from attnsweep.orchestrator.tracking.sync import Mirror
from attnsweep.workloads.errors import UserError

_MOST_WAITING = 4096
"""Told trials that may wait. More are dropped here and found missing later: the ledger has them."""
_SAY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Start:
    """What to project: the sweep directory, the URI of the MLflow store, and seconds from a failure to the next try."""

    directory: str
    uri: str
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class DrawReport:
    """Draw the report of a sweep.

    Attributes:
        report_of: The sweep's directory.
        report_to: The URI of the MLflow store whose run of the sweep gets it; `None` for none.
        keep: Whether the directory gets it.
    """

    report_of: str
    report_to: str | None
    keep: bool

    def problem(self) -> str | None:
        """Does so; why it could not, in one line."""
        try:
            return problem_drawing(SweepDirectory.open(locate(self.report_of)), self.report_to, keep=self.keep)
        except UserError as error:
            return f"no report: {in_one_line(error)}"


@dataclass(frozen=True, slots=True)
class State:
    """How far it is.

    Attributes:
        n_told: Told trials that are in MLflow.
        n_logged: Trials logged.
        n_present: Trials that MLflow had before.
        n_done, n_missing: Trials logged since `close`, of how many that were missing then.
        problem: Why MLflow does not have everything, in one line; `None` while all is well.
    """

    n_told: int = 0
    n_logged: int = 0
    n_present: int = 0
    n_done: int = 0
    n_missing: int = 0
    problem: str | None = None


class _Projector:
    """Logs trials as they are told; while MLflow is out of reach they are dropped, and all that is missing comes later.

    Args:
        start: What to project.
        answers: Where states are written.
    """

    def __init__(self, start: Start, answers: TextIO) -> None:
        self._start = start
        self._answers = answers
        self._told: Queue[int | None] = Queue(maxsize=_MOST_WAITING)
        self._closing = threading.Event()
        self._in_haste = False
        self._n_heard = self._n_dropped = 0
        self._n_told = self._n_logged = self._n_present = self._n_done = self._n_missing = 0
        self._problem: str | None = None
        self._said, self._said_at = State(), 0.0

    def take(self, message: dict[str, Any]) -> None:
        """Takes what the driver says after `Start`."""
        if "close" in message:
            self._in_haste = message["close"]
            self._closing.set()
        for trial in message.get("told", [None]):
            try:
                self._told.put_nowait(trial)
            except Full:
                self._n_dropped += trial is not None
            self._n_heard += trial is not None

    def run(self) -> None:
        """Logs until `close` has come and nothing is missing, or MLflow fails."""
        mirror: Mirror | None = None
        trials: list[int] = []
        n_heard, next_attempt = 0, time.monotonic()
        while not self._closing.is_set():
            if mirror is not None or time.monotonic() >= next_attempt:
                try:
                    if mirror is None:
                        mirror = self._open()
                        if self._closing.is_set():
                            break
                        mirror.runs.begin()
                        # Those that were dropped are among the missing.
                        self._n_dropped, n_heard, trials = 0, self._n_heard, mirror.missing()
                    for logged in mirror.log(trials):
                        self._n_logged += len(logged)
                        self._n_told = min(self._n_told + len(logged), n_heard)
                        self._say()
                        if self._closing.is_set():
                            break
                    else:
                        self._n_told = n_heard
                except Exception as error:  # noqa: BLE001  # whatever MLflow raises, the sweep goes on
                    mirror = None
                    next_attempt = time.monotonic() + self._start.retry_seconds
                    self._problem = in_one_line(error)
            self._say(now=True)
            trials, n_heard = self._take(), self._n_heard - self._n_dropped
        try:
            self._drain(mirror or self._open())
        except Exception as error:  # noqa: BLE001  # as above
            self._problem = in_one_line(error)
        self._say(now=True)

    def _open(self) -> Mirror:
        mirror = Mirror(SweepDirectory.open(locate(self._start.directory)), self._start.uri)
        # A trial whose answer was lost is there, and was not counted.
        self._n_present = max(mirror.n_present - self._n_logged, 0)
        self._problem = None
        return mirror

    def _take(self) -> list[int]:
        """All trials told since the last time; waits for one."""
        told = [self._told.get()]
        with contextlib.suppress(Empty):
            while True:
                told.append(self._told.get_nowait())
        return [trial for trial in told if trial is not None]

    def _drain(self, mirror: Mirror) -> None:
        if self._in_haste:
            mirror.runs.interrupt()
        missing = mirror.missing()
        self._n_missing = len(missing)
        for logged in mirror.log(missing):
            self._n_done += len(logged)
            self._n_logged += len(logged)
            self._say()
        mirror.finish()

    def _say(self, *, now: bool = False) -> None:
        state = State(self._n_told, self._n_logged, self._n_present, self._n_done, self._n_missing, self._problem)
        if state != self._said and (now or time.monotonic() - self._said_at >= _SAY_SECONDS):
            self._said, self._said_at = state, time.monotonic()
            print(json.dumps(asdict(state)), file=self._answers, flush=True)


def main() -> None:
    """All that the process does, on pipes to the driver."""
    # A signal to the whole group is the driver's to answer: it says how this process ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Whatever a library prints must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jobs: SimpleQueue[Callable[[], str | None]] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, answers, jobs), name="driver", daemon=True).start()
    set_environment()
    # Whatever keeps MLflow from being imported, the first job meets it too, and says so.
    with contextlib.suppress(Exception), importing(without=("pandas", "polars")):
        if can_be_made(tracking_uri()):
            importlib.import_module("attnsweep.orchestrator.tracking.mlflow_internals")
    while True:
        print(json.dumps({"ended": jobs.get()()}), file=answers, flush=True)


def _listen(lines: TextIO, answers: TextIO, jobs: "SimpleQueue[Callable[[], str | None]]") -> None:
    """Takes what the driver says; ends this process when the driver is gone, or is of other code than this process."""
    status = 1
    try:
        projector: _Projector | None = None
        for line in lines:
            message = json.loads(line)
            if "report_of" in message:
                jobs.put(DrawReport(**message).problem)
            elif projector is None or "uri" in message:
                projector = _Projector(Start(**message), answers)
                jobs.put(projector.run)
            else:
                projector.take(message)
        status = 0
    finally:
        # Half a trial is completed by the next run, or by `attnsweep mlflow-sync`. The interpreter's own end would wait
        # for the sweep that is being logged.
        os._exit(status)
