"""Rates of a sweep as answers to a question: a table and a figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from attnsweep.orchestrator.analysis.intervals import Rate
from attnsweep.orchestrator.analysis.rates import ParameterRates

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class StuckRates:
    """The stuck rate, over all trials and by parameters one at a time.

    Attributes:
        overall: Over all trials.
        by_parameter: In the bins of `rates.rates_by`.
    """

    overall: Rate
    by_parameter: tuple[ParameterRates, ...]

    def to_arrow(self) -> pa.Table:
        """One row per bin, the first row over all trials: `n` trainings, `k` stuck, `rate` with its 95% interval."""
        rows: list[tuple[str, str, int | None, Rate]] = [("", "", None, self.overall)]
        rows += [(each.title, one.label, one.n_trials, one.rate) for each in self.by_parameter for one in each.bins]
        labels = pa.table(
            {
                "parameter": [row[0] for row in rows],
                "bin": [row[1] for row in rows],
                "n_trials": pa.array([row[2] for row in rows], pa.int64()),
            }
        )
        return _with_rates(labels, [row[3] for row in rows])

    def plot(self) -> "Figure":
        """One panel per parameter with 95% intervals."""
        from attnsweep.orchestrator.analysis.figures.answers import stuck_rates_figure

        return stuck_rates_figure(self)


@dataclass(frozen=True, slots=True)
class OutcomeRates:
    """What trainings ended as.

    Attributes:
        by: What the groups differ in; empty for one group of all.
        groups: Their labels.
        outcomes: Those that occur, but for failed ones, the most frequent first.
        rates: For each group the rate of each outcome among its trainings that did not fail.
        n_failed: Trainings that failed, in all groups.
    """

    by: str
    groups: tuple[str, ...]
    outcomes: tuple[str, ...]
    rates: tuple[tuple[Rate, ...], ...]
    n_failed: int

    def to_arrow(self) -> pa.Table:
        """One row per group and outcome: `n` trainings, `k` with it, `rate` with its 95% interval."""
        rows = [
            (group, outcome, rate)
            for group, rates in zip(self.groups, self.rates, strict=True)
            for outcome, rate in zip(self.outcomes, rates, strict=True)
        ]
        labels = pa.table({"group": [row[0] for row in rows], "outcome": [row[1] for row in rows]})
        return _with_rates(labels, [row[2] for row in rows])

    def plot(self) -> "Figure":
        """The rate of each outcome with its 95% interval, group beside group."""
        from attnsweep.orchestrator.analysis.figures.answers import outcomes_figure

        return outcomes_figure(self)


def _with_rates(labels: pa.Table, rates: Sequence[Rate]) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "n": pa.array([rate.n for rate in rates], pa.int64()),
        "k": pa.array([rate.k for rate in rates], pa.int64()),
        "rate": pa.array([rate.share for rate in rates], pa.float64()),
        "low": pa.array([rate.low for rate in rates], pa.float64()),
        "high": pa.array([rate.high for rate in rates], pa.float64()),
    }
    for name, column in columns.items():
        labels = labels.append_column(name, column)
    return labels
