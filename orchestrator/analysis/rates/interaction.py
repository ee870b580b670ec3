"""Tests whether the effect of one parameter on a rate depends on another parameter. The test is a score test that
allows for dependence between the trainings of a trial.

The model without interaction is a logistic regression on the bins of both factors. The test decides whether adding a
term for each cell of the two factors improves this model. The variance of the score is empirical, with scores summed by
cluster, so trainings of one trial need not be independent; the reference distribution is chi squared. A score test fits
only the model without interaction, so cells where no training or every training has the ending do no harm. Cells
without trials are left out.

The scale is that of log odds: without interaction, a factor multiplies the odds by the same number in all bins of the
other factor. Differences between shares can then still vary from bin to bin, because shares cannot leave 0..1.

In simulation (24 to 1,000 trials of 8 trainings, intra-trial correlation 0.4, 2 x 2 to 5 x 5 bins, no interaction) the
p-value is below 0.05 in 0 to 6% of cases. It is far below 5% where most cells hold few trials or have rates near 0: the
test then errs on the safe side. The tests repeat the simulation.

Source: Boos 1992, The American Statistician 46 (generalized score tests); Guo et al. 2005, Statistics in Medicine 24
(their size with few clusters). Axes: R row, C cluster, B cell.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import Answer, DrawnAnswer, table
from attnsweep.orchestrator.analysis.logistic import fit_logistic
from attnsweep.orchestrator.analysis.rates.bins import Crossing, read_crossing
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending, counts_by_trial
from attnsweep.orchestrator.analysis.rates.intervals import RATE_COLUMNS, Rate, pooling, weights_of_trials
from attnsweep.search_spaces.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NEGLIGIBLE = 1e-8
_SMALLEST_SHOWN = 1e-4
_MOST_CELLS = 150


@dataclass(frozen=True, slots=True)
class InteractionTest:
    """The result of a test whether the effect of one parameter on the rate of an outcome depends on another parameter:
    the statistic of the score test, its degrees of freedom and the p-value.

    The degrees of freedom are the number of terms that the interaction adds. If there is nothing to test, the p-value
    is `None`, and `note` says why.
    """

    statistic: float
    degrees: int
    p: float | None
    note: str = ""

    def __str__(self) -> str:
        if self.p is None:
            return f"not tested: {self.note}"
        sign = "= " if self.p >= _SMALLEST_SHOWN else ""
        return f"chi squared {self.statistic:.1f} with {self.degrees} degrees of freedom, p {sign}{p_label(self.p)}"


def p_label(p: float) -> str:
    """Formats a p-value: `0.023`, or `< 0.0001`."""
    return f"{p:.2g}" if p >= _SMALLEST_SHOWN else f"< {_SMALLEST_SHOWN:f}".rstrip("0")


def interaction_test(n: Floats, k: Floats, first: Ints, second: Ints, cluster: Ints) -> InteractionTest:
    """Tests whether the effect of one factor (such as a parameter) on a rate depends on another factor.

    Args:
        n, k: (R,) the number of trainings, and the number of those with the ending, in R rows. They may be weighted.
        first, second: (R,) the bin of each factor, numbered from 0.
        cluster: (R,) the trial or configuration, numbered from 0 without gaps.
    """
    from scipy import linalg, special

    counted = n > 0
    n, k, first, second = n[counted], k[counted], first[counted], second[counted]
    cluster = np.unique(cluster[counted], return_inverse=True)[1]
    if not 0 < k.sum() < n.sum():
        return InteractionTest(0.0, 0, None, "all trainings end alike")
    places, cell = np.unique(np.column_stack([first, second]), axis=0, return_inverse=True)
    if (n_cells := len(places)) > _MOST_CELLS or 2 * n_cells > cluster.max() + 1:
        return InteractionTest(0.0, 0, None, f"too few trials, or too many cells ({n_cells})")
    # All trainings of a cell (one bin of each of the two parameters) have the same values of the model's terms. So the
    # model is fitted to the counts of the cells and not to single trainings.
    single = np.column_stack([np.eye(int(bins.max()) + 1)[bins] for bins in places.T])
    main, extra = linalg.orth(single, _NEGLIGIBLE), linalg.null_space(single.T, _NEGLIGIBLE)
    if extra.shape[1] == 0:
        return InteractionTest(0.0, 0, None, "the cells with trials do not cross")
    n_B, k_B = (np.bincount(cell, counts).astype(np.float64) for counts in (n, k))
    probability = fit_logistic(main, n_B, k_B).probability
    weight = n_B * probability * (1 - probability)
    # The two parameters may explain a part of the interaction terms `extra` without any interaction. This part, a
    # weighted regression of `extra` on the terms of single parameters `main`, is subtracted.
    projection = np.linalg.lstsq(main.T @ (weight[:, None] * main), main.T @ (weight[:, None] * extra), rcond=None)[0]
    terms = extra - main @ projection
    left = k - n * probability[cell]
    score_C = np.stack([np.bincount(cluster, left * column[cell]) for column in terms.T], axis=1)
    variances, directions = np.linalg.eigh(score_C.T @ score_C)
    informed = variances > _NEGLIGIBLE * max(variances.max(), _NEGLIGIBLE)
    degrees = int(informed.sum())
    if degrees == 0:
        return InteractionTest(0.0, 0, None, "trainings end in both ways in too few cells")
    along = directions[:, informed].T @ score_C.sum(axis=0)
    statistic = float((np.square(along) / variances[informed]).sum())
    return InteractionTest(statistic, degrees, float(special.chdtrc(degrees, statistic)))


def adjusted(p: Sequence[float | None]) -> list[float | None]:
    """Adjusts the p-values of several tests by Holm's method (Holm 1979). A p-value of `None` stays `None`."""
    tested = sorted((value, at) for at, value in enumerate(p) if value is not None)
    p_adjusted: list[float | None] = [None] * len(p)
    highest = 0.0
    for rank, (value, at) in enumerate(tested):
        highest = min(max(highest, value * (len(tested) - rank)), 1.0)
        p_adjusted[at] = highest
    return p_adjusted


@dataclass(frozen=True, slots=True)
class CellRate:
    """The share of trainings that ended in a certain way, such as stuck, over the trials in one cell of two parameters
    (one bin of each). Trainings that failed or were pruned are left out.

    `place` has the numbers of the cell's bins, `labels` their labels.
    """

    place: tuple[int, ...]
    labels: tuple[str, ...]
    n_trials: int
    rate: Rate


@dataclass(frozen=True, slots=True, repr=False)
class Interaction(DrawnAnswer):
    """How often trainings get stuck, or end with one outcome, for each combination ("cell") of bins of two parameters;
    and a test whether the effect of one parameter depends on the other.

    Attributes:
        bins: The labels of the bins of each parameter.
        cells: The cells that hold trials; the bins of the second parameter vary fastest.
        test: The test, on the scale of log odds. It does not take trainings of one trial as independent.
    """

    by: tuple[str, str]
    ending: Ending
    bins: tuple[tuple[str, ...], tuple[str, ...]]
    cells: tuple[CellRate, ...]
    test: InteractionTest

    def _in_words(self) -> str:
        return f"{self.by[0]} x {self.by[1]} on the {self.ending.share_label}: {self.test}"

    def to_arrow(self) -> pa.Table:
        """Returns one row for each combination of a bin of one parameter and a bin of another: the labels of both bins
        (`param_<name>`), the numbers of trials and trainings, the rate and its interval."""
        columns = {**{f"param_{name}": str for name in self.by}, "n_trials": int, **RATE_COLUMNS}
        return table(columns, ((*cell.labels, cell.n_trials, *cell.rate.row) for cell in self.cells))

    def plot(self) -> "Figure":
        """Draws the rate and its interval in each cell of the two parameters. A note above the cells states the result
        of the test whether the effect of one parameter on the rate depends on the other."""
        from attnsweep.orchestrator.analysis.rates.figures import rate_map_figure

        rates = {cell.place: cell.rate for cell in self.cells}
        return rate_map_figure(self.by, self.bins, rates, self.ending, f"Interaction: {self.test}")


@dataclass(frozen=True, slots=True, repr=False)
class Interactions(Answer):
    """Tests, for all pairs of several parameters, whether the effect of one on a rate depends on the other. The
    smallest p-value comes first, pairs that cannot be tested last.

    Attributes:
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
        """Returns one row per pair of parameters: their names, and the result of the test whether the effect of one
        depends on the other (`statistic`, `degrees` of freedom, `p` and `p_adjusted`)."""
        columns = {"first": str, "second": str, "statistic": float, "degrees": int, "p": float, "p_adjusted": float}
        rows = [
            (*pair.by, pair.test.statistic, pair.test.degrees, pair.test.p, p_adjusted)
            for pair, p_adjusted in zip(self.pairs, self.p_adjusted, strict=True)
        ]
        return table(columns, rows)


def read_interaction(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], by: tuple[str, str], ending: Ending
) -> Interaction:
    """Computes how often trainings end stuck, or with one outcome, for each combination of bins of two parameters, and
    tests whether the effect of one parameter depends on the other. Raises a `UserError` for a parameter that the ledger
    has no column for."""
    return _interaction(read_crossing(connection, specs, by), counted_trials(connection, ending), specs, ending)


def read_interactions(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], names: Sequence[str], ending: Ending
) -> Interactions:
    """Tests, for all pairs of the given parameters, whether the effect of one on a rate, such as the share of stuck
    trainings, depends on the other.

    The arguments are those of `read_interaction`.
    """
    counts = counted_trials(connection, ending)
    single = [read_crossing(connection, specs, (name,)) for name in names]
    pairs = (first.across(second) for first, second in itertools.combinations(single, 2))
    interactions = [_interaction(pair, counts, specs, ending) for pair in pairs]
    interactions.sort(key=lambda interaction: (interaction.test.p is None, interaction.test.p))
    return Interactions(
        ending, tuple(interactions), tuple(adjusted([interaction.test.p for interaction in interactions]))
    )


def counted_trials(connection: duckdb.DuckDBPyConnection, ending: Ending) -> dict[int, tuple[int, int]]:
    """Returns for each trial how many of its trainings neither failed nor were pruned, and how many of those end with
    the given ending."""
    return {trial: (n, k) for trial, n, k in counts_by_trial(connection, ending=ending) if n}


def cell_rates(crossing: Crossing, counts: dict[int, tuple[int, int]], specs: Sequence[Sweep]) -> tuple[CellRate, ...]:
    """Computes a rate, such as the share of stuck trainings, for each combination of a bin (range of values) of one
    parameter and a bin of another. Combinations whose trainings all failed or were pruned are left out."""
    pool, rates = pooling(*specs), []
    for place, group in crossing.cells().items():
        inside = [counts[trial] for trial in sorted(group.trials & counts.keys())]
        labels = tuple(labels[at] for labels, at in zip(crossing.bins, place, strict=True))
        if inside:
            rates.append(CellRate(place, labels, len(inside), pool(inside)))
    return tuple(rates)


def _interaction(
    crossing: Crossing, counts: dict[int, tuple[int, int]], specs: Sequence[Sweep], ending: Ending
) -> Interaction:
    places = {trial: place for place, group in crossing.cells().items() for trial in group.trials}
    rows = [(*counts[trial], *places[trial]) for trial in sorted(places.keys() & counts.keys())]
    test = InteractionTest(0.0, 0, None, "no training to count")
    if rows:
        n, k, in_first, in_second = np.array(rows).T
        weight = weights_of_trials(n.astype(np.float64), *specs)
        test = interaction_test(weight, k / n * weight, in_first, in_second, np.arange(len(n)))
    (first, second), bins = crossing.names, crossing.bins
    return Interaction((first, second), ending, (bins[0], bins[1]), cell_rates(crossing, counts, specs), test)
