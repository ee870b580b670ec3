"""Trainings that the report shows one by one, each with its loss curve and the roles of its attention heads."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from attnsweep.orchestrator.analysis.learning_curves import mark_endings
from attnsweep.orchestrator.ledger.views import IS_JUDGED
from attnsweep.orchestrator.report.templating import short_text

PER_ENDING = 24
_MOST_REPLICATES = 8
"""The most replicates of one trial that the page shows one by one."""
_MOST_PROBES = 64
LOT = (
    f"up to {PER_ENDING} trainings of each outcome whose loss still fell at the end and up to {PER_ENDING} whose loss"
    " did not, chosen by the MD5 of their training_id"
)
SAMPLING_RULE = (
    f"{LOT}, and up to {_MOST_REPLICATES} of each extreme trial; each curve has up to {_MOST_PROBES} probes, spread"
    " evenly, with the last one"
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
    """A single training that the report shows, with its loss curve and the roles of its attention heads.

    Attributes:
        trial, replicate: The training's numbers.
        outcome: The training's outcome.
        motion: Whether the loss was still falling at the end, as in `MotionCurve`.
        is_by_lot: Whether the training was drawn at random; else it was chosen because its trial is an extreme one,
            such as the one with the lowest median loss.
        curve: `eval_loss` at the probes, as (step, value), in the order of steps; finite values only.
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
        return asdict(self) | {
            "outcome": short_text(self.outcome),
            "curve": [[step, float(f"{value:.5g}")] for step, value in self.curve],
            "roles": [[layer, [short_text(role) for role in roles_of_heads]] for layer, roles_of_heads in self.roles],
        }


def read_samples(connection: duckdb.DuckDBPyConnection, trials: Iterable[int], *, heads: bool) -> tuple[Sample, ...]:
    """Reads the trainings that the report shows one by one, sorted by trial and replicate.

    Args:
        trials: The numbers of the extreme trials.
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
    for trial, replicate, layer, roles_of_heads in connection.execute(_HEADS).fetchall() if heads else ():
        roles.setdefault((trial, replicate), []).append((layer, tuple(roles_of_heads)))
    samples = []
    for trial, replicate, outcome, motion, is_by_lot in chosen:
        name = trial, replicate
        curve, roles_by_layer = tuple(curves.get(name, ())), tuple(roles.get(name, ()))
        samples.append(Sample(trial, replicate, outcome, motion, is_by_lot, curve, roles_by_layer))
    return tuple(samples)


def thinned(probes: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Selects at most 64 of a training's probes (measurements), evenly spread, with the first and the last."""
    if len(probes) <= _MOST_PROBES:
        return list(probes)
    return [probes[round(at * (len(probes) - 1) / (_MOST_PROBES - 1))] for at in range(_MOST_PROBES)]
