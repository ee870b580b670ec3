"""Other sweeps: those that one is read with, and those whose trials its sampler learned from at the start.

These trials are stored in `warm_start.json`, so that a resumed sweep uses the same ones, even if the earlier sweeps
were moved or removed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from attnsweep.orchestrator.storage.record import Record, RecordFile, unless_empty
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import sha256_of
from attnsweep.workloads.errors import UserError

TRIALS_APART = 1_000_000
"""Between the trial numbers of two sweeps that are read as one: rows of `curves` and `heads` name no sweep."""


def check_numbers(places: Sequence[object], last_trials: Iterable[int]) -> None:
    """Refuses sweeps that, read as one, would give two trials the same number. The last one may have any numbers."""
    for place, last in zip(places[:-1], last_trials, strict=False):
        if last >= TRIALS_APART:
            given = f"trial {last}: read together, a trial of the next sweep would get the same number"
            expected = f"trial numbers below {TRIALS_APART} in every sweep except the last"
            raise UserError(str(place), given=given, expected=expected, fix="name this sweep last, or read it alone")


class ToldTrial(Record):
    """A trial of an earlier sweep, as a later one sees it.

    Attributes:
        drawn: What the later sweep's sampler would have drawn for its parameters.
        values: Of the later sweep's objectives.
        excess: By how much it violates each of the later sweep's constraints.
        n_judged: Trainings behind the values.
    """

    trial: int = Field(ge=0)
    drawn: Mapping[str, Scalar]
    values: tuple[Annotated[float, Field(allow_inf_nan=False)], ...]
    excess: Mapping[str, float] = unless_empty({})
    n_judged: int = Field(ge=1)


class EarlierSweep(Record):
    """`told`: only trials whose parameters lie in the later sweep's search space."""

    place: str
    sweep: str
    spec_sha256: str
    told: tuple[ToldTrial, ...]


class WarmStart(Record):
    sweeps: tuple[EarlierSweep, ...]

    @property
    def sha256(self) -> str:
        """The sweep's own record stores the same hash."""
        return sha256_of(self.model_dump(mode="json"))


WARM_START = RecordFile("warm_start.json", WarmStart, "restore the file from a copy: further draws depend on it")
