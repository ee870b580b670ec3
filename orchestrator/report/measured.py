"""What was measured in the course of trainings: metrics, events, roles."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import duckdb

from attnsweep.orchestrator.analysis.labels import outcome_order
from attnsweep.orchestrator.analysis.learning_curves import LearningCurve, quartile_curves
from attnsweep.orchestrator.analysis.onset import OnsetCurve, onset_curves
from attnsweep.orchestrator.analysis.onset_times import OnsetTimes, event_names, event_times
from attnsweep.orchestrator.analysis.rates.intervals import Pooling, Rate, trials_count_once
from attnsweep.orchestrator.report.facts import OF_EVERY_WORKLOAD, shares_by_trial
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import NO_ROLE, ROLES

MOST_METRICS = 6
"""The most metrics that a report draws."""
_ROLES_AT_THE_END = """
with judged as (select trial, replicate from trainings where outcome not in ('failed', 'diverged', 'pruned')),
last as (select trial, replicate, max(step) as step from heads semi join judged using (trial, replicate) group by all),
ended as (select trial, layer, role from heads semi join last using (trial, replicate, step))
select layer, role, trial, count(*) from ended group by all order by all
"""


class MetricCurves(NamedTuple):
    """The quartiles of one of the workload's own metrics."""

    metric: str
    curves: tuple[LearningCurve, ...]


def read_metric_curves(connection: duckdb.DuckDBPyConnection) -> tuple[MetricCurves, ...]:
    rows = connection.execute(
        f"select metric from curves where metric not in {OF_EVERY_WORKLOAD} group by metric"
        f" having count(distinct step) > 1 order by metric limit {MOST_METRICS}"
    ).fetchall()
    drawn = []
    for (metric,) in rows:
        quartiles = quartile_curves(connection, "outcome", where="outcome <> 'diverged'", metric=metric)
        outcomes = sorted((outcome for outcome, points in quartiles.items() if points), key=outcome_order)
        drawn.append(MetricCurves(metric, tuple(LearningCurve(outcome, quartiles[outcome]) for outcome in outcomes)))
    return tuple(entry for entry in drawn if entry.curves)


def read_events(
    connection: duckdb.DuckDBPyConnection, spec: Sweep
) -> tuple[tuple[OnsetCurve, ...], tuple[OnsetCurve, ...]]:
    """When events happen, and the delay from each to the next."""
    events = event_names(connection)
    times = {event: event_times(connection, event) for event in events}
    delays = {
        f"{then} after {first}": event_times(connection, then, first) for first, then in itertools.pairwise(events)
    }
    once = trials_count_once(spec)

    def curves(times: Mapping[str, OnsetTimes]) -> tuple[OnsetCurve, ...]:
        return tuple(
            replace(curve, label=label) for label, each in times.items() for curve in onset_curves(each, (), once)
        )

    return curves(times), curves(delays)


class RoleShare(NamedTuple):
    """The share of a layer's heads with one role at the last probe."""

    layer: int
    role: str
    rate: Rate


def role_composition(connection: duckdb.DuckDBPyConnection, pool: Pooling) -> tuple[RoleShare, ...]:
    rows = connection.execute(_ROLES_AT_THE_END).fetchall()
    known = [*ROLES]
    roles = sorted(
        {role for _, role, _, _ in rows},
        key=lambda role: (role == NO_ROLE, known.index(role) if role in known else len(known), role),
    )
    return tuple(
        RoleShare(layer, role, rate)
        for layer, of_layer in itertools.groupby(rows, key=lambda row: row[0])
        for role, rate in shares_by_trial([row[1:] for row in of_layer], roles, pool).items()
    )
