"""The sweeps that a merged directory was made of. Such a directory is for analysis: nothing is trained in it."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from attnsweep.workloads.errors import UserError

TRIALS_APART = 1_000_000
"""The distance between the numbers of trial 0 of two sweeps that are read as one; no sweep has as many trials."""


class Source(BaseModel):
    """One sweep of a merged directory.

    Attributes:
        sweep: Its identity, also in the column `sweep` of its rows.
        place: Where it was.
        spec_sha256: Hash of its spec. Its whole record is `sources/<sweep>.json`.
        first_trial: What its trial 0 is called in the merged directory.
        n_trainings: Its rows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sweep: str
    place: str
    spec_sha256: str
    first_trial: int = Field(ge=0)
    n_trainings: int = Field(ge=0)


def source_file(sweep: str) -> str:
    """The name in a merged directory of the record of a sweep."""
    return f"sources/{sweep}.json"


def refuse_merged(place: object, sources: Sequence[Source]) -> None:
    """Refuses to train, replay or project a merged directory.

    Args:
        place: The directory.
        sources: What it was merged from; nothing, for a sweep that was run.

    Raises:
        UserError: If it is one.
    """
    if sources:
        raise UserError(
            str(place),
            given=f"{len(sources)} sweeps that were merged for analysis",
            expected="a sweep that was run",
            fix="name the sweep itself: " + ", ".join(each.place for each in sources),
        )
