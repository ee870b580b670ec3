"""The progress of a running sweep: `progress.json`, which its driver rewrites and `attnsweep status` reads."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime

from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.record import Record, RecordFile
from attnsweep.orchestrator.storage.shards import at_once

_WRITE_SECONDS = 3.0
_UPLOAD_SECONDS = 15.0
"""Seconds between two writes to an object store: more, because the driver waits for the answer."""
_ALIVE = timedelta(minutes=1)
"""A driver that has written nothing for longer than this may be dead."""


class PackUnderWay(Record):
    """A pack in training: its size, and the progress that its trainer has last reported.

    Attributes:
        pack: The pack's name.
        n_trainings: Number of trainings in the pack.
        step, n_steps: The step that the trainings have reached, and the number of steps that they take.
        n_running: Number of trainings that have not ended; `None` if unknown.
        where: The host and the device that train the pack; empty if unknown.
    """

    pack: str
    n_trainings: int
    step: int
    n_steps: int
    n_running: int | None = None
    where: str = ""

    def in_words(self) -> str:
        """Describes the pack: `64 trainings, 40 still training, step 120 of 500, on node7 cuda`."""
        alive = "" if self.n_running in (None, self.n_trainings) else f", {self.n_running} still training"
        on = f", on {self.where}" if self.where else ""
        return f"{self.n_trainings} trainings{alive}, step {self.step} of {self.n_steps}{on}"


class Progress(Record):
    """The progress of a sweep as its driver last wrote it.

    Attributes:
        at: The time, by the driver's clock.
        doing: The driver's activity in words; empty once its run has ended.
        n_asked: Number of trials requested from the sampler so far.
        packs: The packs in training.
        mlflow: What is not in MLflow yet, in words; empty if nothing is missing or known to be.
    """

    at: AwareDatetime
    doing: str
    n_asked: int
    packs: tuple[PackUnderWay, ...]
    mlflow: str = ""

    def in_words(self, now: datetime) -> str:
        """Describes whether the sweep is running, with ages of its progress. Ages are at least 0, because two
        machines' clocks may differ."""
        age = max(now - self.at, timedelta(0))
        if not self.doing:
            return f"not finished; its last run ended {span(age)} ago"
        if age > _ALIVE:
            return f"not finished; no sign of life for {span(age)}"
        return f"running ({self.doing}); last sign of life {span(age)} ago"

    def is_running(self, now: datetime) -> bool:
        """Returns whether the driver has recently reported that it is at work."""
        return bool(self.doing) and now - self.at <= _ALIVE


PROGRESS = RecordFile("progress.json", Progress, "remove it: no result depends on it")


def progress_of(places: Sequence[Place]) -> Progress | None:
    """Returns the progress that a sweep's driver has written, or the drivers of its shards together; `None` if there is
    none.

    Args:
        places: The directories that the drivers write to.
    """
    read = at_once(PROGRESS.read_if_sound, places, max((place.n_at_once for place in places), default=1))
    reports = [report for report in read if report is not None]
    if len(reports) < 2:
        return reports[0] if reports else None
    latest = max(reports, key=lambda report: (bool(report.doing), report.at))
    return Progress(
        at=latest.at,
        doing=latest.doing,
        n_asked=sum(report.n_asked for report in reports),
        packs=tuple(pack for report in reports if report.doing for pack in report.packs),
        mlflow=", ".join(dict.fromkeys(report.mlflow for report in reports if report.mlflow)),
    )


class Beacon:
    """Writes a sweep's progress to a file, at most every few seconds. A failure to write never stops the sweep.

    Args:
        place: The sweep, whose one writer this process is.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._seconds = _WRITE_SECONDS if self._place.pins_open_files else _UPLOAD_SECONDS
        self._next = 0.0
        self._n_asked = 0

    def show(self, doing: str, n_asked: int, packs: Sequence[PackUnderWay], mlflow: str = "") -> None:
        """Writes the progress, unless it was written a moment ago. Takes the arguments of `Progress`."""
        self._n_asked = n_asked
        if time.monotonic() >= self._next:
            self._write(doing, packs, mlflow)
            # The pause begins after the write has ended, so that writes to a slow store are rare.
            self._next = time.monotonic() + self._seconds

    def end(self) -> None:
        """Writes to the progress file that the run has ended."""
        self._write("", ())

    def _write(self, doing: str, packs: Sequence[PackUnderWay], mlflow: str = "") -> None:
        at = datetime.now(UTC)
        now = Progress(at=at, doing=doing, n_asked=self._n_asked, packs=tuple(packs), mlflow=mlflow)
        PROGRESS.write_passing(self._place, now)


def packs_in_words(packs: Sequence[PackUnderWay]) -> str:
    """Summarizes packs in training: `2 packs under way, step 120 to 400 of 500`; returns an empty text if there are
    none."""
    if not packs:
        return ""
    steps = sorted(pack.step for pack in packs)
    reached = f"{steps[0]}" if steps[0] == steps[-1] else f"{steps[0]} to {steps[-1]}"
    n_steps = max(pack.n_steps for pack in packs)
    return f"{len(packs)} pack{'s' if len(packs) > 1 else ''} under way, step {reached} of {n_steps}"


def span(length: timedelta) -> str:
    """Formats a duration: `5 s`, `5 min`, `5 h`, `5 days`."""
    seconds = length.total_seconds()
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
