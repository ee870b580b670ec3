"""A rate in the cells of two parameters, and whether the two interact: numbers, a table and a figure."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from attnsweep.orchestrator.analysis.answer import Answer, DrawnAnswer
from attnsweep.orchestrator.analysis.rates.by_parameter import counts_by_trial
from attnsweep.orchestrator.analysis.rates.crossing import Crossing, read_crossing
from attnsweep.orchestrator.analysis.rates.ending import Ending
from attnsweep.orchestrator.analysis.rates.interaction import InteractionTest, adjusted, interaction_test
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooling, trials_count_once
from attnsweep.search_spaces.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class CellRate:
    """The rate of the trials in one cell.

    Attributes:
        place: The number of the cell's bin on each axis.
        labels: The labels of these bins.
        n_trials: Trials in the cell.
        rate: The rate over their trainings that did not fail.
    """

    place: tuple[int, ...]
    labels: tuple[str, ...]
    n_trials: int
    rate: Rate


@dataclass(frozen=True, slots=True, repr=False)
class Interaction(DrawnAnswer):
    """A rate in the cells of two parameters, and whether the effect of one parameter depends on the other.

    Attributes:
        by: The two parameters.
        ending: What the rate is of.
        bins: The labels of the bins of each parameter.
        cells: The cells that hold trials; the second parameter runs fastest.
        test: The test, on the scale of log odds; trainings of one trial are not taken as independent.
    """

    by: tuple[str, str]
    ending: Ending
    bins: tuple[tuple[str, ...], tuple[str, ...]]
    cells: tuple[CellRate, ...]
    test: InteractionTest

    def _in_words(self) -> str:
        return f"{self.by[0]} x {self.by[1]} on the {self.ending.share_label}: {self.test}"

    def to_arrow(self) -> pa.Table:
        """One row per cell: `param_<name>` holds the label of the bin; then trials, trainings, rate and interval."""
        return cells_to_arrow(self.by, self.cells)

    def plot(self) -> "Figure":
        """The rate in each cell with its interval, and the test above them."""
        from attnsweep.orchestrator.analysis.rates.map_figure import rate_map_figure

        rates = {cell.place: cell.rate for cell in self.cells}
        return rate_map_figure(self.by, self.bins, rates, self.ending, f"Interaction: {self.test}")


@dataclass(frozen=True, slots=True, repr=False)
class Interactions(Answer):
    """All pairs of several parameters.

    Attributes:
        ending: What the rates are of.
        pairs: The smallest p-value first; pairs that cannot be tested are last.
        p_adjusted: For each pair its p-value adjusted for the number of pairs by Holm's method: if every pair below
            0.05 is called an interaction, the chance of a single false call is at most 0.05.
    """

    ending: Ending
    pairs: tuple[Interaction, ...]
    p_adjusted: tuple[float | None, ...]

    def _in_words(self) -> str:
        n_shown = sum(p is not None and p < 0.05 for p in self.p_adjusted)
        pairs = f"{len(self.pairs)} pairs of parameters, {n_shown} with adjusted p < 0.05"
        return f"{pairs}, on the {self.ending.share_label}"

    def to_arrow(self) -> pa.Table:
        """One row per pair: the parameters, the statistic, its degrees of freedom, `p` and `p_adjusted`."""
        tests = [pair.test for pair in self.pairs]
        return pa.table(
            {
                "first": pa.array([pair.by[0] for pair in self.pairs], pa.string()),
                "second": pa.array([pair.by[1] for pair in self.pairs], pa.string()),
                "statistic": pa.array([test.statistic for test in tests], pa.float64()),
                "degrees": pa.array([test.degrees for test in tests], pa.int64()),
                "p": pa.array([test.p for test in tests], pa.float64()),
                "p_adjusted": pa.array(self.p_adjusted, pa.float64()),
            }
        )


def read_interaction(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], by: tuple[str, str], ending: Ending
) -> Interaction:
    """The rate of an ending in the cells of two parameters.

    Args:
        connection: From `Ledger.connect`.
        specs: The specs of the sweeps in the ledger.
        by: The two parameters.
        ending: What the rate is of.

    Raises:
        UserError: For a parameter that the ledger has no column for.
    """
    return _interaction(read_crossing(connection, specs, by), counted_trials(connection, ending), specs, ending)


def read_interactions(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], names: Sequence[str], ending: Ending
) -> Interactions:
    """The interactions of all pairs of these parameters; arguments as for `read_interaction`."""
    counts = counted_trials(connection, ending)
    single = [read_crossing(connection, specs, (name,)) for name in names]
    pairs = (first.across(second) for first, second in itertools.combinations(single, 2))
    found = [_interaction(pair, counts, specs, ending) for pair in pairs]
    found.sort(key=lambda each: (each.test.p is None, each.test.p))
    return Interactions(ending, tuple(found), tuple(adjusted([each.test.p for each in found])))


def counted_trials(connection: duckdb.DuckDBPyConnection, ending: Ending) -> dict[int, tuple[int, int]]:
    """For each trial with judged trainings, their number and the number of those with this ending."""
    return {trial: (n, k) for trial, n, k in counts_by_trial(connection, ending=ending) if n}


def cell_rates(crossing: Crossing, counts: dict[int, tuple[int, int]], specs: Sequence[Sweep]) -> tuple[CellRate, ...]:
    """The rate in each cell that holds trials with judged trainings."""
    pool, found = pooling(*specs), []
    for place, group in crossing.cells().items():
        inside = [counts[trial] for trial in sorted(group.trials & counts.keys())]
        labels = tuple(labels[at] for labels, at in zip(crossing.bins, place, strict=True))
        if inside:
            found.append(CellRate(place, labels, len(inside), pool(inside)))
    return tuple(found)


def cells_to_arrow(by: Sequence[str], cells: Sequence[CellRate]) -> pa.Table:
    """One row per cell, whose bins are named in a column `param_<name>` for each parameter."""
    columns = {
        f"param_{name}": pa.array([each.labels[at] for each in cells], pa.string()) for at, name in enumerate(by)
    }
    table = pa.table({**columns, "n_trials": pa.array([each.n_trials for each in cells], pa.int64())})
    return with_rates(table, [each.rate for each in cells])


def with_rates(table: pa.Table, rates: Sequence[Rate]) -> pa.Table:
    """The table with the columns `n`, `k`, `rate`, `low` and `high`."""
    columns: dict[str, pa.Array] = {
        "n": pa.array([rate.n for rate in rates], pa.int64()),
        "k": pa.array([rate.k for rate in rates], pa.int64()),
        "rate": pa.array([rate.share for rate in rates], pa.float64()),
        "low": pa.array([rate.low for rate in rates], pa.float64()),
        "high": pa.array([rate.high for rate in rates], pa.float64()),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _interaction(
    crossing: Crossing, counts: dict[int, tuple[int, int]], specs: Sequence[Sweep], ending: Ending
) -> Interaction:
    (first, second), bins = crossing.names, crossing.bins
    test = _test(crossing, counts, once_per_trial=trials_count_once(*specs))
    return Interaction((first, second), ending, (bins[0], bins[1]), cell_rates(crossing, counts, specs), test)


def _test(crossing: Crossing, counts: dict[int, tuple[int, int]], *, once_per_trial: bool) -> InteractionTest:
    places = {trial: place for place, group in crossing.cells().items() for trial in group.trials}
    rows = [(*counts[trial], *places[trial]) for trial in sorted(places.keys() & counts.keys())]
    if not rows:
        return InteractionTest(0.0, 0, None, "no training to count")
    n, k, first, second = np.array(rows).T
    # Under `Sequential` a trial's number of trainings depends on how they ended, so all trials count the same.
    share, weight = k / n, np.full(len(n), n.mean()) if once_per_trial else n.astype(np.float64)
    return interaction_test(weight, share * weight, first, second, np.arange(len(n)))
