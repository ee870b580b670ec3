"""What trainings of each outcome measured: the workload's own metrics at the last probe, and the outcome's onset."""

from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.labels import outcome_order

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_OF_EVERY_WORKLOAD = ("loss", "eval_loss", "grad_norm", "param_norm")
_MOST_METRICS = 20
_ONSETS = f"""
select outcome, count(*), quantile_cont(onset_step, {[*QUANTILES]}) from trainings
where onset_step is not null group by outcome
"""
_METRICS = f"""
with own as (select trial, replicate, metric, step, value from curves where metric not in {_OF_EVERY_WORKLOAD}),
last as (select metric, trial, replicate, arg_max(value, step) as value from own group by all)
select metric, outcome, count(*), quantile_cont(value, {[*QUANTILES]})
from last join trainings using (trial, replicate) group by all
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured number over the trainings of one outcome.

    Attributes:
        name: The metric, or `onset_step`: the step from which the outcome held.
        outcome: Their label.
        n: The trainings that have it.
        quantiles: At `QUANTILES`, over these trainings.
    """

    name: str
    outcome: str
    n: int
    quantiles: tuple[float, ...]


def read_measures(connection: duckdb.DuckDBPyConnection) -> tuple[Measure, ...]:
    """The onsets, then the first 20 of the workload's own metrics by name; outcomes in the order of every table."""
    onsets = [("onset_step", *row) for row in connection.execute(_ONSETS).fetchall()]
    metrics = connection.execute(_METRICS).fetchall()
    shown = sorted({metric for metric, *_ in metrics})[:_MOST_METRICS]
    rows = [*onsets, *(row for row in metrics if row[0] in shown)]
    found = [Measure(name, outcome, n, tuple(quantiles)) for name, outcome, n, quantiles in rows]
    return tuple(sorted(found, key=_place))


def _place(measure: Measure) -> tuple[bool, str, tuple[int, str]]:
    return measure.name != "onset_step", measure.name, outcome_order(measure.outcome)
