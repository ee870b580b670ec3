"""The sweeps that a merged directory was made of. Such a directory is for analysis: nothing is trained in it."""

from collections.abc import Iterable, Sequence

from pydantic import Field

from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.record import Record
from attnsweep.workloads.errors import UserError

TRIALS_APART = 1_000_000
"""The distance between the numbers of trial 0 of two sweeps that are read as one.

Rows of `curves` and `heads` name their training by trial and replicate, and have no column `sweep`: a query that joins
them to `trainings` would mix trials of one number."""
_MOST_SWEEPS = 2**31 // TRIALS_APART
"""The numbers of trials have 32 bits."""


class CutShortError(UserError):
    """The directory holds a merge that has not ended."""


class Source(Record):
    """One sweep of a merged directory.

    Attributes:
        sweep: Its identity, also in the column `sweep` of its rows.
        place: Where it was.
        spec_sha256: Hash of its spec. Its whole record is `sources/<sweep>.json`.
        first_trial: What its trial 0 is called in the merged directory.
        n_trainings: Its rows.
    """

    sweep: str
    place: str
    spec_sha256: str
    first_trial: int = Field(ge=0)
    n_trainings: int = Field(ge=0)


def source_file(sweep: str) -> str:
    """The name in a merged directory of the record of a sweep."""
    return f"sources/{sweep}.json"


def check_numbers(places: Sequence[object], last_trials: Iterable[int]) -> None:
    """Checks that no two trials of sweeps that are read as one get the same number.

    Args:
        places: The sweeps.
        last_trials: The highest number of a trial in each. That of the last sweep may be any.

    Raises:
        UserError: If they do.
    """
    if len(places) > _MOST_SWEEPS:
        raise UserError(
            "DIR...", given=f"{len(places)} sweeps", expected=f"at most {_MOST_SWEEPS}", fix="take fewer at a time"
        )
    for place, last in zip(places[:-1], last_trials, strict=False):
        if last >= TRIALS_APART:
            raise UserError(
                str(place),
                given=f"trial {last}, whose number is also that of a trial of the next sweep",
                expected=f"trials below {TRIALS_APART} in all of several sweeps but the last",
                fix="name it last, or read it alone",
            )


def refuse_cut_short(place: object, sources: Sequence[Source]) -> None:
    """Refuses a directory into which these sweeps have not been merged completely.

    Raises:
        CutShortError: Always.
    """
    again = " ".join(map(as_argument, (place, *(each.place for each in sources))))
    raise CutShortError(
        str(place),
        given="a merge that is under way or was cut short",
        expected="a sweep, or a complete merge",
        fix=f"repeat it: attnsweep merge {again}; or remove the directory",
    )


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
