"""Records of a sweep that no result depends on: `progress.json`, which the driver rewrites and `status` reads, and
`replays.json`, the self-check at its end."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AwareDatetime, Field

from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.record import DamagedRecordError, Record, RecordFile
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

_WRITE_SECONDS = 3.0
_UPLOAD_SECONDS = 15.0
"""Seconds between two writes of the progress to an object store. They are longer than for a disk, because the driver
waits for the store's answer."""
_ALIVE = timedelta(minutes=1)
"""A driver that has not written its progress for longer than this may be dead."""


class PackUnderWay(Record):
    """How far a pack had come when its trainer last reported.

    Attributes:
        where: The host and the device that train the pack; empty if unknown.
        metric: The workload's first metric at the last probe, and its mean over the pack; `None` before a report.
        probe_share: The share of the pack's time that probes take, if it goes on as so far; `None` if unknown.
    """

    pack: str
    n_trainings: int
    step: int
    n_steps: int
    n_running: int | None = None
    where: str = ""
    metric: tuple[str, Annotated[float, Field(allow_inf_nan=False)]] | None = None
    probe_share: float | None = None

    def in_words(self) -> str:
        """Such as `64 trainings, 40 still training, step 120 of 500, on node7 cuda`."""
        alive = "" if self.n_running in (None, self.n_trainings) else f", {self.n_running} still training"
        on = f", on {self.where}" if self.where else ""
        value = "" if self.metric is None else f", {self.metric[0]} {self.metric[1]:.3g}"
        probes = f", probes take {self.probe_share:.0%} of the time" if (self.probe_share or 0) > 0.1 else ""
        return f"{self.n_trainings} trainings{alive}, step {self.step} of {self.n_steps}{value}{probes}{on}"


class Progress(Record):
    """A sweep's progress as its driver last wrote it.

    Attributes:
        at: The time, by the driver's clock.
        doing: The driver's activity in words; empty once its run has ended.
        n_asked: Number of trials drawn so far.
        mlflow: Which trials MLflow does not have yet, in words; empty if it has all or this is unknown.
        seconds_left: Estimated seconds until all trainings have ended; `None` if unknown.
        seconds: Seconds that the last command took that ran the sweep; `None` while it runs.
        is_marked: Whether the run in MLflow of a driver that was killed has been ended.
    """

    at: AwareDatetime
    doing: str
    n_asked: int
    packs: tuple[PackUnderWay, ...]
    mlflow: str = ""
    seconds_left: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    is_marked: bool = False

    def in_words(self, now: datetime) -> str:
        """Whether the sweep is running, and how long ago its driver last wrote.

        The clocks of two machines may differ; a negative time is shown as 0.
        """
        age = max(now - self.at, timedelta(0))
        if not self.doing:
            return f"not finished; its last run ended {span(age)} ago"
        if age > _ALIVE:
            return f"not finished; no sign of life for {span(age)}: killed?"
        return f"running ({self.doing}); last sign of life {span(age)} ago"

    def is_running(self, now: datetime) -> bool:
        return bool(self.doing) and now - self.at <= _ALIVE


PROGRESS = RecordFile("progress.json", Progress, "remove it: no result depends on it")


class Beacon:
    """Writes progress at most every few seconds. A failure to write never stops the sweep."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._seconds = _WRITE_SECONDS if self._place.n_at_once == 1 else _UPLOAD_SECONDS
        self._next = 0.0
        self._n_asked = 0

    def show(
        self,
        doing: str,
        n_asked: int,
        packs: Sequence[PackUnderWay],
        mlflow: str = "",
        seconds_left: float | None = None,
    ) -> None:
        """Takes the arguments of `Progress`."""
        self._n_asked = n_asked
        if time.monotonic() >= self._next:
            now = Progress(
                at=datetime.now(UTC),
                doing=doing,
                n_asked=n_asked,
                packs=tuple(packs),
                mlflow=mlflow,
                seconds_left=seconds_left,
            )
            PROGRESS.write_passing(self._place, now)
            # The time until the next write is counted from the end of this one, so that writes to a slow store stay
            # rare.
            self._next = time.monotonic() + self._seconds

    def end(self) -> None:
        PROGRESS.write_passing(self._place, Progress(at=datetime.now(UTC), doing="", n_asked=self._n_asked, packs=()))


def record_seconds(place: Place, seconds: float) -> None:
    """Writes how long the run's command took. Failures are ignored."""
    progress = PROGRESS.read_if_sound(place)
    if progress is not None and not progress.doing:
        PROGRESS.write_passing(place, progress.model_copy(update={"seconds": seconds}))


def packs_in_words(packs: Sequence[PackUnderWay]) -> str:
    """Such as `2 packs under way, step 120 to 400 of 500, accuracy 0.83`; empty if there are none."""
    if not packs:
        return ""
    steps = sorted(pack.step for pack in packs)
    reached = f"{steps[0]}" if steps[0] == steps[-1] else f"{steps[0]} to {steps[-1]}"
    n_steps = max(pack.n_steps for pack in packs)
    words = f"{len(packs)} pack{'s' if len(packs) > 1 else ''} under way, step {reached} of {n_steps}"
    measured = [(pack.metric, pack.n_trainings) for pack in packs if pack.metric is not None]
    if not measured:
        return words
    mean = sum(value * n for (_, value), n in measured) / sum(n for _, n in measured)
    return f"{words}, {measured[0][0][0]} {mean:.3g}"


def span(length: timedelta) -> str:
    """Such as `5 s`, `5 min`, `5 h`, `5 days`."""
    seconds = length.total_seconds()
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


LIKELY_CAUSES = (
    "the workload draws random numbers outside the seeded streams, as biases of torch.nn layers may be",
    "a Python attribute of the module, which is no tensor, differs between trainings that share a pack",
    "another type of machine or version of PyTorch than trained the row: column environment, attnsweep replay",
    "a kernel whose last bits depend on the lane's place, in a training that a saddle makes sensitive",
)
"""Possible reasons why a repeated training ends differently when it trains with other trainings, the most likely
first."""


class Replays(Record):
    """The results of the self-check.

    Attributes:
        deviations: Relative difference between the losses of replay and original, by training id; `None` if a loss is
            not finite.
        disagreeing: The columns in which a replay differs from the original row, by training id.
        raised: The last line of the error that a replay raised, by training id.
        in_packs: Ids of the trainings that were replayed in a pack with others; all others were replayed alone.
        left_out: By type of machine, the number of trainings that were not replayed, because no machine of that type
            was available.
    """

    deviations: Mapping[str, float | None]
    disagreeing: Mapping[str, list[str]]
    raised: Mapping[str, str] = {}
    in_packs: Sequence[str] = ()
    left_out: Mapping[str, int] = {}

    @property
    def largest(self) -> float | None:
        """The largest relative difference between two losses; `None` if any is not finite."""
        values = list(self.deviations.values())
        return None if None in values else max((value for value in values if value is not None), default=0.0)

    @property
    def fault(self) -> str | None:
        """A sentence on the trainings that ended otherwise than recorded; `None` if there are none."""
        return str(self) if self.disagreeing else None

    def as_json(self) -> dict[str, int | float | None]:
        """How many trainings were repeated, how many of them agree, and the largest difference."""
        n = len(self.deviations)
        return {"trainings": n, "agreeing": n - len(self.disagreeing), "largest_deviation": self.largest}

    def __str__(self) -> str:
        left_out = ", ".join(f"{n} of {machine}" for machine, n in self.left_out.items())
        return f"{self._ended}; no machine was there for {left_out}" if left_out else self._ended

    @property
    def _ended(self) -> str:
        n = len(self.deviations)
        if n == 0:
            return "replayed no training" + ("" if self.left_out else ": all have failed")
        for training, error in self.raised.items():
            return f"the replay of {training}, which had ended without an error, raised {error}"
        if self.disagreeing:
            first, columns = next(iter(self.disagreeing.items()))
            others = f"{len(self.disagreeing)} of {n} trainings {self._how}"
            return f"replayed {others}, which end differently, such as {first} ({', '.join(columns)})"
        largest = "unknown" if self.largest is None else f"{self.largest:.2g}"
        return f"replayed {n} trainings {self._how}: they end as before, largest deviation of a loss {largest}"

    @property
    def _how(self) -> str:
        n_in_packs = len(self.in_packs)
        return f"({len(self.deviations) - n_in_packs} alone, {n_in_packs} in other packs)" if n_in_packs else "alone"


REPLAYS = RecordFile("replays.json", Replays, "replay them again with: attnsweep resume {}")


def read_replays(directory: SweepDirectory) -> Replays | None:
    """`None` if there was no self-check.

    Raises:
        DamagedRecordError: If a record is not as it was written.
    """
    return REPLAYS.read_if_there(directory.place)


def earlier_replays(directory: SweepDirectory) -> Replays | None:
    """Also `None` if the record is damaged, so that the check is made again."""
    try:
        return read_replays(directory)
    except DamagedRecordError:
        return None
