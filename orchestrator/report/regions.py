"""Rates in cells of the two parameters that matter most, and an ending's probability as a function of them. Axis: T
trial."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.labels import outcome_order
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram, read_phase_diagram
from attnsweep.orchestrator.analysis.rates.bins import Bins, cell_bins, dimension_of, equal_bins, fine_bins
from attnsweep.orchestrator.analysis.rates.by_parameter import SOLVED, Ending, Question, counts_by_trial, read_values
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooling
from attnsweep.orchestrator.analysis.rates.outcomes import tallies
from attnsweep.search_spaces.dimensions import Float, Scalar
from attnsweep.search_spaces.sweep import Sweep

_MIN_TRIALS = 2
"""In a cell that may be the best."""


@dataclass(frozen=True, slots=True)
class Axis:
    """`edges`: of the bins; empty except for ranges of real numbers."""

    parameter: str
    labels: tuple[str, ...]
    edges: tuple[float, ...]
    is_range: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of two parameters; `place`: the number of the bin on each axis; `asked`: the rate in question."""

    place: tuple[int, ...]
    n_trials: int
    asked: Rate
    solved: Rate
    outcomes: Mapping[str, Rate]


@dataclass(frozen=True, slots=True)
class Regions:
    """The two parameters on which a rate depends most, the rate in each cell, and the best cell.

    Attributes:
        explained: Epsilon squared of each parameter that varies unconditionally, in falling order: the part of the
            variance between trials that lies between bins, chance taken off.
        measure: The ending whose variance that is: `solved` if the rate in question is the same in all trials.
        axes: The first two of `explained`, the one with fewer bins first; one axis if only one varies.
        cells: One for each pair of bins; the bins of the second axis vary fastest.
        best: The one with the highest lower bound of the rate that is sought, or the lowest upper bound of one to
            avoid, among those with several trials. `None` if these are fewer than two, or none has the sought ending.
    """

    explained: dict[str, float]
    question: Question
    measure: Ending
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    best: Cell | None

    def rows(self) -> list[list[Cell]]:
        """The rows of a table that looks like a plot: the first parameter to the right, any second one upwards."""
        rows = sorted({cell.place[1:] for cell in self.cells}, reverse=True)
        return [[cell for cell in self.cells if cell.place[1:] == row] for row in rows]

    def labels(self, cell: Cell) -> list[tuple[str, str]]:
        """Each parameter's name with the label of its bin."""
        return [(axis.parameter, axis.labels[at]) for axis, at in zip(self.axes, cell.place, strict=True)]

    @property
    def best_by(self) -> str:
        bound = "highest lower" if self.question.wants_more else "lowest upper"
        return f"the {bound} bound of the {self.question.best_by.share_label}"


def read_regions(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, question: Question, bins: int | None = None
) -> Regions | None:
    """`None` if the sweep varies no parameter that all trials have."""
    counted = {trial: (n, k) for trial, n, k in counts_by_trial(connection, (), question.ending) if n}
    by_trial = tallies(connection)
    outcomes = sorted({name for tally in by_trial.values() for name in tally}, key=outcome_order)
    trials, n_T = [*counted], np.array([n for n, _ in counted.values()])
    asked_T = np.array([k for _, k in counted.values()])
    ended_T = {name: np.array([by_trial[trial].get(name, 0) for trial in trials]) for name in outcomes}
    solved_T = ended_T.get("solved", np.zeros_like(n_T))
    values: dict[str, list[Scalar]] = {}
    for name, of_trial in read_values(connection, [spec], [*spec.varied()]).items():
        _, kept = dimension_of([spec], name, of_trial)
        if kept.keys() >= counted.keys():
            values[name] = [kept[trial] for trial in trials]
    if not values:
        return None
    varies = len(np.unique(asked_T / n_T)) > 1
    measure, share_T = (question.ending, asked_T / n_T) if varies else (SOLVED, solved_T / n_T)
    varied = spec.varied()
    explained = {
        name: _epsilon_squared(share_T, fine_bins(varied[name], each).place(each)) for name, each in values.items()
    }
    # Stable: parameters that explain nothing keep the order of the search space.
    explained = dict(sorted(explained.items(), key=lambda entry: -entry[1]))
    binning = equal_bins(bins, cell_bins if len(explained) > 1 else fine_bins)
    chosen = sorted(
        ((name, binning(varied[name], values[name])) for name in [*explained][:2]), key=lambda pair: len(pair[1])
    )
    bins_T = [own_bins.place(values[name]) for name, own_bins in chosen]
    pool, cells = pooling(spec), []
    for place in itertools.product(*(range(len(own_bins)) for _, own_bins in chosen)):
        inside_T = np.logical_and.reduce([bin_T == number for bin_T, number in zip(bins_T, place, strict=True)])
        asked, solved = (pool(np.column_stack([n_T, k_T])[inside_T]) for k_T in (asked_T, solved_T))
        by_outcome = {name: pool(np.column_stack([n_T, k_T])[inside_T]) for name, k_T in ended_T.items()}
        cells.append(Cell(place, int(inside_T.sum()), asked, solved, by_outcome))
    axes = tuple(_axis(name, own_bins) for name, own_bins in chosen)
    return Regions(explained, question, measure, axes, tuple(cells), _best(cells, question))


def _axis(name: str, bins: Bins) -> Axis:
    # Choices, and whole numbers with a bin each, are no range.
    is_range = any(low != high for _, low, high in bins.ranges())
    edges = bins.edges if isinstance(bins.dimension, Float) else ()
    return Axis(name, tuple(label for label, _, _ in bins.ranges()), edges, is_range)


def _epsilon_squared(share_T: NDArray[np.float64], bin_T: NDArray[np.int64]) -> float:
    total = float(np.square(share_T - share_T.mean()).sum()) if len(share_T) else 0.0
    used, used_T = np.unique(bin_T, return_inverse=True)
    degrees_of_freedom = len(share_T) - len(used)
    if total == 0.0 or degrees_of_freedom <= 0:
        return 0.0
    means = np.bincount(used_T, share_T) / np.bincount(used_T)
    within = float(np.square(share_T - means[used_T]).sum())
    by_chance = (len(used) - 1) * within / degrees_of_freedom
    return max((total - within - by_chance) / total, 0.0)


def _best(cells: Sequence[Cell], question: Question) -> Cell | None:
    several = [cell for cell in cells if cell.n_trials >= _MIN_TRIALS]
    rated = [(cell, cell.solved if question.best_by == SOLVED else cell.asked) for cell in several]
    if question.wants_more:
        sought = [(cell, rate) for cell, rate in rated if rate.k]
        best = max(sought, key=lambda pair: (pair[1].low, pair[1].share), default=None)
    else:
        best = min(rated, key=lambda pair: (pair[1].high, pair[1].share), default=None)
    return best[0] if best is not None and len(several) > 1 else None


def read_diagram(connection: duckdb.DuckDBPyConnection, spec: Sweep, regions: Regions | None) -> PhaseDiagram | None:
    """Over the axes of `regions`; `None` unless these are two ranges of numbers."""
    if regions is None or len(regions.axes) < 2 or not all(axis.is_range for axis in regions.axes):
        return None
    if not any(cell.n_trials for cell in regions.cells):
        return None
    x, y = (axis.parameter for axis in regions.axes)
    return read_phase_diagram(connection, [spec], x, y, regions.question.ending)
