"""`progress.json`: how far a sweep is, whether it is finished, its seconds and its self-check."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, Field

from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.record import Record, RecordFile

_WRITE_SECONDS = 3.0
_ALIVE = timedelta(minutes=1)
"""A driver that has not written for longer may be dead."""


class PackUnderWay(Record):
    """How far a pack had come when its trainer last reported.

    Attributes:
        n_running: Trainings that go on; `None` if unknown.
        where: The host and the device; empty if unknown.
        metric: The workload's first metric at the last probe, its mean over the pack; `None` before a report.
    """

    pack: str
    n_trainings: int
    step: int
    n_steps: int
    n_running: int | None = None
    where: str = ""
    metric: tuple[str, Annotated[float, Field(allow_inf_nan=False)]] | None = None

    def in_words(self) -> str:
        """Such as `64 trainings, 40 still training, step 120 of 500, on node7 cuda`."""
        alive = "" if self.n_running in (None, self.n_trainings) else f", {self.n_running} still training"
        on = f", on {self.where}" if self.where else ""
        value = "" if self.metric is None else f", {self.metric[0]} {self.metric[1]:.3g}"
        return f"{self.n_trainings} trainings{alive}, step {self.step} of {self.n_steps}{value}{on}"


class Replays(Record):
    """The results of the self-check.

    Attributes:
        deviations: Relative difference between the losses of replay and original, by training id; `None` if one is not
            finite, or the replay raised.
        disagreeing: The columns in which a replay differs, by training id.
        left_out: How many trainings found no machine of their type, by type.
    """

    deviations: Mapping[str, float | None]
    disagreeing: Mapping[str, list[str]]
    left_out: Mapping[str, int] = {}

    @property
    def largest(self) -> float | None:
        """`None` if one is unknown."""
        values = list(self.deviations.values())
        return None if None in values else max((value for value in values if value is not None), default=0.0)

    @property
    def fault(self) -> str | None:
        """A sentence on the trainings that ended otherwise than recorded; `None` if there are none."""
        return str(self) if self.disagreeing else None

    def as_json(self) -> dict[str, int | float | None]:
        n = len(self.deviations)
        return {"trainings": n, "agreeing": n - len(self.disagreeing), "largest_deviation": self.largest}

    def __str__(self) -> str:
        n = len(self.deviations)
        largest = "unknown" if self.largest is None else f"{self.largest:.2g}"
        if self.disagreeing:
            first, columns = next(iter(self.disagreeing.items()))
            n_others = len(self.disagreeing)
            sentence = f"{n_others} of {n} replayed trainings end differently, such as {first} ({', '.join(columns)})"
        elif n:
            sentence = f"replayed {n} trainings: they end as before, largest deviation of a loss {largest}"
        else:
            sentence = "replayed no training" + ("" if self.left_out else ": all have failed")
        left_out = ", ".join(f"{n} of {machine}" for machine, n in self.left_out.items())
        return f"{sentence}; no machine was there for {left_out}" if left_out else sentence


class Progress(Record):
    """As the driver last wrote it.

    Attributes:
        at: By the driver's clock.
        doing: The driver's activity in words; empty once its run has ended.
        seconds: Wall time of all runs that have ended.
        n_asked: Trials drawn.
        seconds_left: Estimate of the time until all trainings have ended; `None` if unknown.
    """

    at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    doing: str = ""
    finished: bool = False
    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    replays: Replays | None = None
    n_asked: int = 0
    packs: tuple[PackUnderWay, ...] = ()
    seconds_left: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def in_words(self, now: datetime) -> str:
        """Such as `running (training); last sign of life 2 s ago`."""
        age = max(now - self.at, timedelta(0))  # the clocks of two machines may differ
        if self.finished:
            return "finished"
        if not self.doing:
            return f"not finished; its last run ended {span(age)} ago"
        if age > _ALIVE:
            return f"not finished; no sign of life for {span(age)}: killed?"
        return f"running ({self.doing}); last sign of life {span(age)} ago"

    def is_running(self, now: datetime) -> bool:
        return bool(self.doing) and now - self.at <= _ALIVE


PROGRESS = RecordFile("progress.json", Progress, "write it anew with: attnsweep resume {}")


class Beacon:
    """Writes progress at most every few seconds while a sweep runs, which a failure to write never stops."""

    def __init__(self, place: Path, before: Progress) -> None:
        self._place, self._before = place, before
        self._next = 0.0

    def show(
        self,
        doing: str,
        n_asked: int,
        packs: Sequence[PackUnderWay],
        seconds_left: float | None = None,
    ) -> None:
        """Takes the arguments of `Progress`."""
        if time.monotonic() >= self._next:
            now = {"at": datetime.now(UTC), "doing": doing, "n_asked": n_asked, "packs": tuple(packs)}
            with suppress(OSError, StoreError):
                progress = self._before.model_copy(update=now | {"seconds_left": seconds_left})
                PROGRESS.write(self._place, progress, durable=False)
            # Counted from the end of the write, so that writes to a slow store stay rare.
            self._next = time.monotonic() + _WRITE_SECONDS


def span(length: timedelta) -> str:
    """Such as `5 s`, `5 min`, `5 h`, `5 days`."""
    seconds = length.total_seconds()
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
