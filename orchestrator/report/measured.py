"""What was measured in the course of trainings: a workload's own metrics, its events, and the roles of attention
heads."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb

from attnsweep.orchestrator.analysis.hazards import HazardRatios
from attnsweep.orchestrator.analysis.labels import outcome_order
from attnsweep.orchestrator.analysis.learning_curves import LearningCurve, quartile_curves
from attnsweep.orchestrator.analysis.onset import OnsetCurve, onset_by, onset_curves
from attnsweep.orchestrator.analysis.onset_times import OnsetTimes, event_names, event_times
from attnsweep.orchestrator.analysis.rates.bins import read_crossing
from attnsweep.orchestrator.analysis.rates.intervals import Pooling, Rate, trials_count_once
from attnsweep.orchestrator.analysis.role_emergence import ending_note, role_histories
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


@dataclass(frozen=True, slots=True)
class MetricCurves:
    """The quartiles over trainings of one of the workload's own metrics, by step.

    Attributes:
        metric: The metric's name.
        curves: The quartiles of the metric for each outcome whose trainings measured it, except `diverged`.
    """

    metric: str
    curves: tuple[LearningCurve, ...]


def read_metric_curves(connection: duckdb.DuckDBPyConnection) -> tuple[MetricCurves, ...]:
    """Reads the quartiles over trainings of the workload's own metrics at each step. Metrics that were measured at only
    one step are left out.

    Of the others, the first `MOST_METRICS` in alphabetical order are read.
    """
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
    connection: duckdb.DuckDBPyConnection, spec: Sweep, names: Sequence[str]
) -> tuple[tuple[OnsetCurve, ...], tuple[OnsetCurve, ...], tuple[HazardRatios, ...]]:
    """Reads the steps at which the events that a workload declares happen in trainings, and the delay from each event
    to the next.

    Args:
        names: The parameters in whose bins the times are compared, at most two; without any there are no hazard ratios.

    Returns:
        Three things: the share of trainings in which each event has held, by step; the same share by the delay since
        the preceding event; and hazard ratios, which compare the bins: how soon each event comes, and how soon it
        follows the preceding event. A curve's label is its event. Events that come in no training have no ratios.
    """
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

    hazards: list[HazardRatios] = []
    if events and names:
        crossing = read_crossing(connection, [spec], names)
        onsets = [onset_by(label, each, crossing, once_per_trial=once) for label, each in (times | delays).items()]
        hazards = [onset.hazard_ratios() for onset in onsets if any(curve.n_came for curve in onset.curves)]
    return curves(times), curves(delays), tuple(hazards)


@dataclass(frozen=True, slots=True)
class RoleShare:
    """The share of a layer's attention heads that have one role when the heads were last measured. `none` (no role)
    counts as a role here."""

    layer: int
    role: str
    rate: Rate


def role_composition(connection: duckdb.DuckDBPyConnection, pool: Pooling) -> tuple[RoleShare, ...]:
    """Computes what share of each layer's attention heads has each role. Intervals allow for dependence between heads
    of one trial."""
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


def read_role_hazards(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, names: Sequence[str]
) -> tuple[list[tuple[int | None, HazardRatios]], str]:
    """Estimates hazard ratios: how much sooner each role of attention heads emerges in a bin of a parameter than in the
    reference bin.

    Args:
        names: The parameters whose bins are compared, at most two; without any there are no ratios.

    Returns:
        The layer and the ratios of each role that emerges somewhere, and a note on what these estimates assume, from
        `ending_note`.
    """
    histories, crossing = role_histories(connection), read_crossing(connection, [spec], names)
    once = trials_count_once(spec)
    hazards = []
    for history in histories if names else ():
        onset = onset_by(history.role, history.onsets, crossing, once_per_trial=once)
        if any(curve.n_came for curve in onset.curves):
            hazards.append((history.layer, onset.hazard_ratios()))
    return hazards, ending_note(histories)
