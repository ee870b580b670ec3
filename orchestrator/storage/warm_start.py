"""The trials of earlier sweeps that a sweep's sampler was told before its first draw: `warm_start.json`.

They are stored, not looked up again: a resumed sweep draws by the same trials, wherever the earlier sweeps are by then.
"""

from collections.abc import Mapping

from pydantic import Field

from attnsweep.orchestrator.storage.record import Record, RecordFile
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import sha256_of


class ToldTrial(Record):
    """One trial that the sampler was told.

    Attributes:
        trial: Its number in its sweep.
        drawn: What it drew, by the names of the later sweep's space.
        value: The later sweep's objective over its trainings; of several the first.
        more: Its other objectives.
        excess: How far the trial is beyond each of its constraints.
        n_judged: The number of trainings behind the value.
    """

    trial: int = Field(ge=0)
    drawn: Mapping[str, Scalar]
    value: float = Field(allow_inf_nan=False)
    # Left out where empty, so that the files of earlier versions keep their sha256.
    more: tuple[float, ...] = Field(default=(), exclude_if=lambda values: not values)
    excess: Mapping[str, float] = Field(default={}, exclude_if=lambda excess: not excess)
    n_judged: int = Field(ge=1)


class EarlierSweep(Record):
    """A sweep whose trials were told.

    Attributes:
        place: Where it was.
        sweep: Its identity.
        spec_sha256: Hash of its spec.
        told: Its trials that the later sweep could have drawn.
    """

    place: str
    sweep: str
    spec_sha256: str
    told: tuple[ToldTrial, ...]


class WarmStart(Record):
    """What `warm_start.json` holds: the earlier sweeps, in the order in which the sampler was told."""

    sweeps: tuple[EarlierSweep, ...]

    @property
    def told(self) -> list[ToldTrial]:
        """The trials of all sweeps, in their order."""
        return [trial for sweep in self.sweeps for trial in sweep.told]

    @property
    def sha256(self) -> str:
        """Identifies the content; the sweep's record has it."""
        return sha256_of(self.model_dump(mode="json"))


WARM_START = RecordFile("warm_start.json", WarmStart, "restore the file from a copy: further draws depend on it")
