"""A workload's own metrics by step and outcome, its events, and the delays between its events."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures import (
    GREY,
    figure_text,
    house_style,
    label_powers,
    legend_below,
    new_figure,
    scale_steps,
    title_panel,
)
from attnsweep.orchestrator.analysis.hazards import HazardRatios
from attnsweep.orchestrator.analysis.labels import outcome_order
from attnsweep.orchestrator.analysis.learning_curves import LearningCurve, quartile_curves
from attnsweep.orchestrator.analysis.onset import OnsetCurve, onset_by, onset_curves
from attnsweep.orchestrator.analysis.onset_times import OnsetTimes, event_names, event_times
from attnsweep.orchestrator.analysis.rates.bins import read_crossing
from attnsweep.orchestrator.analysis.rates.intervals import trials_count_once
from attnsweep.orchestrator.report.facts import OF_EVERY_WORKLOAD
from attnsweep.search_spaces.sweep import Sweep

MOST_METRICS = 6
"""The most metrics that a report draws."""
_MANYFOLD = 100.0
"""The axis of a metric is logarithmic if its largest value is at least this many times its smallest."""


@dataclass(frozen=True, slots=True)
class MetricCurves:
    """The curves of one of the workload's own metrics by step.

    Attributes:
        metric: The metric's name.
        curves: The metric's quartiles, for each outcome except `diverged` whose trainings measured it.
    """

    metric: str
    curves: tuple[LearningCurve, ...]


def read_metric_curves(connection: duckdb.DuckDBPyConnection) -> tuple[MetricCurves, ...]:
    """Reads the curves of the workload's own metrics that were measured at more than one probe: the first
    `MOST_METRICS` by name."""
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


@house_style()
def metric_figure(metric: MetricCurves, colours: Mapping[str, str]) -> Figure:
    """Draws a metric by step: for each outcome, the median and the middle half of its trainings."""
    figure, panel = new_figure()
    points = [point for curve in metric.curves for point in curve.points]
    for curve in metric.curves:
        steps = [point.step for point in curve.points]
        colour = colours.get(curve.outcome, GREY)
        low, median, high = np.array([(point.low, point.median, point.high) for point in curve.points]).T
        panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.plot(steps, median, color=colour, marker=".", label=curve.outcome)
    scale_steps(panel, sorted({point.step for point in points}))
    lowest, highest = min(point.low for point in points), max(point.high for point in points)
    if lowest > 0 and highest >= _MANYFOLD * lowest:
        panel.set_yscale("log")
        label_powers(panel.yaxis)
    panel.set_ylabel(figure_text(metric.metric.replace("_", " ")))
    title_panel(panel, figure_text(metric.metric.replace("_", " ")))
    legend_below(figure, {str(line.get_label()): line for line in panel.get_lines()}, columns=2)
    return figure


def read_event_curves(
    connection: duckdb.DuckDBPyConnection, spec: Sweep
) -> tuple[tuple[OnsetCurve, ...], tuple[OnsetCurve, ...]]:
    """Reads the share of trainings in which each event has held: by step, and by the delay since the preceding event.

    The preceding event is the one that the workload declares before it. A curve's label is its event.
    """
    once = trials_count_once(spec)

    def curves(times: Mapping[str, OnsetTimes]) -> tuple[OnsetCurve, ...]:
        drawn = ((label, onset_curves(onset_times, (), once)) for label, onset_times in times.items())
        return tuple(replace(curve, label=label) for label, onsets in drawn for curve in onsets)

    events, delays = _event_times(connection)
    return curves(events), curves(delays)


def read_event_hazards(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, names: Sequence[str]
) -> tuple[HazardRatios, ...]:
    """Estimates, in the bins of parameters, how much sooner each event comes, and how much sooner it follows the
    preceding event.

    Events that come in no training are left out.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        names: The parameters whose bins are compared, at most two; none gives no ratios.
    """
    if not names:
        return ()
    crossing, once = read_crossing(connection, [spec], names), trials_count_once(spec)
    events, delays = _event_times(connection)
    onsets = (onset_by(label, times, crossing, once_per_trial=once) for label, times in (events | delays).items())
    return tuple(onset.hazard_ratios() for onset in onsets if any(curve.n_came for curve in onset.curves))


def _event_times(connection: duckdb.DuckDBPyConnection) -> tuple[dict[str, OnsetTimes], dict[str, OnsetTimes]]:
    """Reads the step at which each event first held, by name, and the delay since the preceding event, by `<event>
    after <event>`."""
    names = event_names(connection)
    events = {name: event_times(connection, name) for name in names}
    pairs = itertools.pairwise(names)
    return events, {f"{then} after {first}": event_times(connection, then, first) for first, then in pairs}
