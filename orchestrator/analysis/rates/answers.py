"""Rates as answers to a question: numbers, a table and a figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.rates.by_parameter import ParameterRates
from attnsweep.orchestrator.analysis.rates.grouping import Group
from attnsweep.orchestrator.analysis.rates.intervals import Pooling, Rate, rate_label
from attnsweep.orchestrator.ledger.sql import IS_JUDGED

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class StuckRates:
    """The stuck rate, over all trials and by each parameter.

    Attributes:
        overall: The rate over all trials.
        by_parameter: The rates in the bins of each parameter.
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
        """One panel per parameter with 95% intervals; without parameters, the rate over all trials."""
        from attnsweep.orchestrator.analysis.rates.figure import grouped_rates_figure, stuck_rate_figure

        drawn = [each for each in self.by_parameter if each.bins]
        if drawn:
            return stuck_rate_figure(drawn, title=f"stuck rate {rate_label(self.overall)}")
        return grouped_rates_figure(["all trials"], {"": [self.overall]}, "stuck rate")


@dataclass(frozen=True, slots=True)
class OutcomeRates:
    """The rate of each outcome.

    Attributes:
        by: The parameter whose bins are the groups; empty for one group of all trials.
        groups: The labels of the groups.
        outcomes: The outcomes that occur except `failed`, the most frequent first.
        rates: For each group the rate of each outcome among its trainings that did not fail.
        n_failed: The number of failed trainings in all groups.
    """

    by: str
    groups: tuple[str, ...]
    outcomes: tuple[str, ...]
    rates: tuple[tuple[Rate, ...], ...]
    n_failed: int

    def to_arrow(self) -> pa.Table:
        """One row per group and outcome: `n` trainings, `k` with the outcome, `rate` with its 95% interval."""
        rows = [
            (group, outcome, rate)
            for group, rates in zip(self.groups, self.rates, strict=True)
            for outcome, rate in zip(self.outcomes, rates, strict=True)
        ]
        labels = pa.table({"group": [row[0] for row in rows], "outcome": [row[1] for row in rows]})
        return _with_rates(labels, [row[2] for row in rows])

    def plot(self) -> "Figure":
        """The rate of each outcome with its 95% interval, the groups side by side."""
        from attnsweep.orchestrator.analysis.rates.figure import grouped_rates_figure

        names = [name.replace("_", " ") for name in self.outcomes]
        groups = dict(zip(self.groups, self.rates, strict=True))
        legend = parameter_label(self.by) if self.by else ""
        return grouped_rates_figure(names, groups, "share of trainings, 95% interval", legend)


def outcome_counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """The number of trainings by outcome, the most frequent first."""
    rows = connection.execute("select outcome, count(*) from trainings group by 1 order by 2 desc, 1").fetchall()
    return dict(rows)


def outcome_rates(
    connection: duckdb.DuckDBPyConnection, by: str, groups: Sequence[Group], pool: Pooling
) -> OutcomeRates:
    """The rate of each outcome in each group of trials.

    Args:
        connection: With the views of a ledger.
        by: The parameter whose bins are the groups; empty for one group of all trials.
        groups: The groups.
        pool: How to combine trials: from `pooling`.
    """
    totals = outcome_counts(connection)
    n_failed = totals.pop("failed", 0)
    counts: dict[int, dict[str, int]] = {}
    for trial, outcome, count in connection.execute(
        f"select trial, outcome, count(*) from trainings where {IS_JUDGED} group by all"
    ).fetchall():
        counts.setdefault(trial, {})[outcome] = count
    rates = []
    for group in groups:
        inside = [counts[trial] for trial in sorted(group.trials & counts.keys())]
        rates.append(tuple(pool([(sum(each.values()), each.get(name, 0)) for each in inside]) for name in totals))
    return OutcomeRates(by, tuple(group.label for group in groups), tuple(totals), tuple(rates), n_failed)


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
