"""Stuck, or slow? The steps that stuck trainings took, against those in which they were to leave their start."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import duckdb

from attnsweep.orchestrator.ledger.sql import literal
from attnsweep.workloads.vocabulary import STUCK_OUTCOMES

_WELL_PAST = 2.0


@dataclass(frozen=True, slots=True)
class StuckOrSlow:
    """What laws of the start say of the stuck trainings of a sweep.

    Attributes:
        stuck: Trained for at least twice the predicted steps: more of them would not have helped.
        slow: Still where they started, and trained for fewer steps than predicted: more of them free them.
        unknown: No law is known, or the steps decide neither.
        ratio: The median of trained over predicted steps; infinite where most leave at once.
    """

    stuck: int
    slow: int
    unknown: int
    ratio: float

    def as_json(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        return dataclasses.asdict(self) | {"ratio": self.ratio if math.isfinite(self.ratio) else None}

    def sentence(self) -> str:
        """The answer in one line."""
        return (
            f"stuck or slow: of {self.stuck + self.slow + self.unknown} stuck trainings, {self.stuck} took at least"
            f" {_WELL_PAST:g} times the steps predicted for leaving their start, {self.slow} stopped earlier,"
            f" of {self.unknown} it is not known"
        )


def read_stuck_or_slow(connection: duckdb.DuckDBPyConnection) -> StuckOrSlow | None:
    """The answer for the trainings in a ledger; `None` if no stuck one has a prediction.

    Args:
        connection: From `Ledger.connect`.
    """
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    if "predicted_escape_step" not in columns:
        return None  # An earlier version wrote all of it.
    outcomes = ", ".join(literal(outcome) for outcome in STUCK_OUTCOMES)
    ((n, stuck, slow, ratio),) = connection.execute(
        f"""
        select count(*), count(*) filter (ratio >= {_WELL_PAST}),
            count(*) filter (ratio < 1 and outcome = 'degenerate_zero'), median(ratio)
        from (select outcome, n_steps / predicted_escape_step as ratio from trainings
              where outcome in ({outcomes}))
        """
    ).fetchall()
    return None if ratio is None else StuckOrSlow(stuck, slow, n - stuck - slow, ratio)
