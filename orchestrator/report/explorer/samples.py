"""The trainings that the page shows in full: their learning curves and the roles of their heads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from attnsweep.orchestrator.analysis.learning_curves import mark_endings
from attnsweep.orchestrator.ledger.sql import IS_JUDGED
from attnsweep.orchestrator.report.explorer.points import text

PER_ENDING = 24
_MOST_REPLICATES = 8
"""Of one trial that is shown in full."""
_MOST_PROBES = 64
LOT = (
    f"up to {PER_ENDING} of each outcome that still moved at their end and up to {PER_ENDING} that stood still, chosen"
    " by the MD5 of their training_id"
)
RULE = (
    f"{LOT}, and up to {_MOST_REPLICATES} of each trial among the extremes; of each curve, up to"
    f" {_MOST_PROBES} probes spread evenly, the last one included"
)

_CHOSEN = f"""
create or replace temp table shown_in_full as
select trial, replicate, outcome, motion,
    row_number() over (partition by ending order by md5(training_id), trial, replicate) <= {PER_ENDING} as is_by_lot
from endings where {IS_JUDGED}
qualify is_by_lot or (trial in (select unnest(?::int[]))
        and row_number() over (partition by trial order by replicate) <= {_MOST_REPLICATES})
"""
_CURVES = """
select trial, replicate, list(step order by step), list(value order by step)
from curves semi join shown_in_full using (trial, replicate)
where metric = 'eval_loss' and isfinite(value) group by trial, replicate
"""
_HEADS = """
with shown as (from heads semi join shown_in_full using (trial, replicate)),
last as (select trial, replicate, max(step) as step from shown group by all),
ended as (from shown semi join last using (trial, replicate, step))
select trial, replicate, layer, list(role order by head) from ended group by trial, replicate, layer order by all
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One training in full.

    Attributes:
        trial, replicate: Which one it is.
        outcome: How it ended.
        motion: Whether it still moved at its end, as in `MotionCurve`.
        is_by_lot: Whether it stands for the others; else it was chosen for its trial.
        curve: `eval_loss` at its probes, as (step, value), rising steps; without values that are not finite.
        roles: The roles of the heads at the last probe, as (layer, the role of each head).
    """

    trial: int
    replicate: int
    outcome: str
    motion: str
    is_by_lot: bool
    curve: tuple[tuple[int, float], ...]
    roles: tuple[tuple[int, tuple[str, ...]], ...]

    def as_json(self) -> dict[str, Any]:
        """For the page's script."""
        roles = [[layer, [text(role) for role in of]] for layer, of in self.roles]
        curve = [[step, float(f"{value:.5g}")] for step, value in self.curve]
        return {
            **{"trial": self.trial, "replicate": self.replicate, "outcome": text(self.outcome)},
            **{"motion": self.motion, "by_lot": self.is_by_lot},
            **{"curve": curve, "roles": roles},
        }


def read_samples(connection: duckdb.DuckDBPyConnection, trials: Iterable[int], *, heads: bool) -> tuple[Sample, ...]:
    """Reads the trainings to show in full, in the order of trial and replicate.

    Args:
        connection: From `Ledger.connect`.
        trials: The numbers of the trials among the extremes.
        heads: Whether heads were scored.
    """
    mark_endings(connection)
    connection.execute(_CHOSEN, [sorted(set(trials))])
    chosen = connection.execute("from shown_in_full order by all").fetchall()
    curves = {
        (trial, replicate): thinned(list(zip(steps, values, strict=True)))
        for trial, replicate, steps, values in connection.execute(_CURVES).fetchall()
    }
    roles: dict[tuple[int, int], list[tuple[int, tuple[str, ...]]]] = {}
    for trial, replicate, layer, of in connection.execute(_HEADS).fetchall() if heads else ():
        roles.setdefault((trial, replicate), []).append((layer, tuple(of)))
    return tuple(
        Sample(
            trial=trial,
            replicate=replicate,
            outcome=outcome,
            motion=motion,
            is_by_lot=is_by_lot,
            curve=tuple(curves.get((trial, replicate), ())),
            roles=tuple(roles.get((trial, replicate), ())),
        )
        for trial, replicate, outcome, motion, is_by_lot in chosen
    )


def thinned(probes: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most 64 of the probes, spread evenly, the first and the last included."""
    if len(probes) <= _MOST_PROBES:
        return list(probes)
    return [probes[round(at * (len(probes) - 1) / (_MOST_PROBES - 1))] for at in range(_MOST_PROBES)]
