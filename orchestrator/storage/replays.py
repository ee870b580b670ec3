"""The record `replays.json`: trainings that were trained again, alone or in other packs, at the end of their sweep."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.record import DamagedRecordError, Record, RecordFile
from attnsweep.orchestrator.storage.shards import at_once
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

LIKELY_CAUSES = (
    "the workload draws random numbers outside the seeded streams, as biases of torch.nn layers may be",
    "a Python attribute of the module, which is no tensor, differs between trainings that share a pack",
    "another type of machine or version of PyTorch than trained the row: column environment, attnsweep replay",
    "a kernel whose last bits depend on the lane's place, in a training that a saddle makes sensitive",
)
"""Possible reasons why a training ends differently in another pack, the most likely first."""


class Replays(Record):
    """The results of training some recorded trainings of a sweep once more (replays).

    Attributes:
        deviations: Deviation of the loss, as in `inspection.deviation`, by training id; `None` if a loss is not finite.
        disagreeing: The columns in which a replay differs from the original row, by training id.
        in_packs: Ids of the trainings that were replayed in a pack with others; all others were replayed alone.
        left_out: By type of machine, the number of trainings that were not replayed, because no machine of that type
            was available.
    """

    deviations: Mapping[str, float | None]
    disagreeing: Mapping[str, list[str]]
    in_packs: Sequence[str] = ()
    left_out: Mapping[str, int] = {}

    @property
    def largest(self) -> float | None:
        """The largest relative deviation of a loss between a training and its replay; `None` if one is not finite."""
        values = list(self.deviations.values())
        return None if None in values else max((value for value in values if value is not None), default=0.0)

    @property
    def fault(self) -> str | None:
        """A sentence about what is wrong; `None` if all replays end as the original trainings did."""
        return str(self) if self.disagreeing else None

    def as_json(self) -> dict[str, int | float | None]:
        """Returns the counts and the largest deviation as plain JSON values."""
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
    """Returns the replays that an earlier run has recorded, or those of all shards together; `None` if there are none.

    Raises:
        DamagedRecordError: If a record is not as it was written.
    """
    read = at_once(_read_if_there, directory.homes, directory.place.n_at_once)
    replays = [record for record in read if record is not None]
    if len(replays) < 2:
        return replays[0] if replays else None
    return Replays(
        deviations=dict(chain.from_iterable(record.deviations.items() for record in replays)),
        disagreeing=dict(chain.from_iterable(record.disagreeing.items() for record in replays)),
        in_packs=[*chain.from_iterable(record.in_packs for record in replays)],
    )


def _read_if_there(place: Place) -> Replays | None:
    with suppress(FileNotFoundError):
        return REPLAYS.read(place)
    return None


def earlier_replays(directory: SweepDirectory) -> Replays | None:
    """Returns the replays of an earlier run like `read_replays`, but `None` for a damaged record, so that its
    trainings are replayed again."""
    try:
        return read_replays(directory)
    except DamagedRecordError:
        return None
