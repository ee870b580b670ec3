"""The trials of earlier sweeps that were reported to a sweep's sampler before its first draw: `warm_start.json`.

They are stored, not looked up again, so a resumed sweep draws from the same trials, wherever the earlier sweeps are by
then.
"""

from collections.abc import Mapping

from pydantic import Field

from attnsweep.orchestrator.storage.record import Record, RecordFile
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import sha256_of


class ToldTrial(Record):
    """A trial of an earlier sweep from which the sampler of a later sweep learns.

    Attributes:
        trial: The trial's number in its own sweep.
        drawn: The drawn values, by the names in the later sweep's space.
        value: The value, over the trial's trainings, of the later sweep's objective, or of the first of several.
        more: The values of the other objectives.
        excess: How far the trial violates each of the later sweep's constraints.
        n_judged: The number of trainings that the value is computed from.
    """

    trial: int = Field(ge=0)
    drawn: Mapping[str, Scalar]
    value: float = Field(allow_inf_nan=False)
    # Empty fields are left out of the JSON, so that files of earlier versions, which lack them, keep their sha256.
    more: tuple[float, ...] = Field(default=(), exclude_if=lambda values: not values)
    excess: Mapping[str, float] = Field(default={}, exclude_if=lambda excess: not excess)
    n_judged: int = Field(ge=1)


class EarlierSweep(Record):
    """An earlier sweep, with those of its trials from which the sampler of a later sweep learns.

    Attributes:
        place: Where the earlier sweep was.
        sweep: The earlier sweep's identity.
        spec_sha256: Hash of the earlier sweep's spec.
        told: The earlier sweep's trials whose values the later sweep could have drawn.
    """

    place: str
    sweep: str
    spec_sha256: str
    told: tuple[ToldTrial, ...]


class WarmStart(Record):
    """The content of `warm_start.json`: earlier sweeps, in the order in which their trials were given to the
    sampler."""

    sweeps: tuple[EarlierSweep, ...]

    @property
    def told(self) -> list[ToldTrial]:
        """The trials of all earlier sweeps, in the order in which they were given to the sampler."""
        return [trial for sweep in self.sweeps for trial in sweep.told]

    @property
    def sha256(self) -> str:
        """A hash of the content, which is also stored in the sweep's record."""
        return sha256_of(self.model_dump(mode="json"))


WARM_START = RecordFile("warm_start.json", WarmStart, "restore the file from a copy: further draws depend on it")
