"""Which trainings still moved when they ended, whatever their outcome: by the rule of the detail `moving`."""

from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.labels import outcome_order
from attnsweep.orchestrator.analysis.learning_curves import CurveQuartiles, quartile_curves
from attnsweep.workloads.engine.schedule import TAIL
from attnsweep.workloads.vocabulary import MOVING_SHARE, UNJUDGED_OUTCOMES

MOVING, STILL = "moving", "still"

_ENDINGS = f"""
create temp table if not exists endings as
with probed as (select trial, replicate, step, value from curves where metric = 'eval_loss'),
last as (select trial, replicate, floor({TAIL}::double * max(step)) as tail_start from probed group by all),
moved as (
    select trial, replicate, final < (1 - {MOVING_SHARE}::double * sign(before)) * before as is_moving
    from (
        select trial, replicate, arg_max(value, step) as final,
            arg_max(value, step) filter (step <= tail_start) as before
        from probed join last using (trial, replicate) group by all
    )
)
select trial, replicate, training_id, outcome, diverged_step,
    case when is_moving is null or outcome in {("diverged", *UNJUDGED_OUTCOMES)} then ''
        when is_moving then '{MOVING}' else '{STILL}' end as motion,
    outcome || '/' || motion as ending
from trainings left join moved using (trial, replicate)
"""


@dataclass(frozen=True, slots=True)
class MotionCurve:
    """The loss of the trainings with one outcome that moved, or stood still, when they ended.

    Attributes:
        outcome: The outcome.
        motion: `moving`, `still`, or empty: it diverged, failed or was pruned, so neither is known.
        n_trainings: Their number.
        points: The quartiles at steps where at least half of them have a finite loss.
    """

    outcome: str
    motion: str
    n_trainings: int
    points: tuple[CurveQuartiles, ...]


def mark_endings(connection: duckdb.DuckDBPyConnection) -> None:
    """Makes the table `endings`, one row per training: its outcome and its motion, also as `outcome/motion`.

    Idempotent.

    Args:
        connection: From `Ledger.connect`.
    """
    connection.execute(_ENDINGS)


def read_motion_curves(connection: duckdb.DuckDBPyConnection) -> tuple[MotionCurve, ...]:
    """One curve for each outcome and motion that has probes, in the order of `OUTCOMES`, moving ones first.

    Args:
        connection: From `Ledger.connect`.
    """
    mark_endings(connection)
    curves = quartile_curves(connection, "ending", trainings="endings")
    counts = connection.execute("select outcome, motion, count(*) from endings group by all").fetchall()
    found = [
        MotionCurve(outcome, motion, n, curves[ending])
        for outcome, motion, n in counts
        if (ending := f"{outcome}/{motion}") in curves
    ]
    return tuple(sorted(found, key=lambda each: (outcome_order(each.outcome), each.motion)))
