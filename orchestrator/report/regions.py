"""Rates in cells of the two parameters that matter most, and an ending's probability as a function of them."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.labels import outcome_order
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram, read_phase_diagram
from attnsweep.orchestrator.analysis.rates.bins import Binning, cell_bins, equal_bins, fine_bins, has_bin
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    SOLVED,
    Ending,
    ParameterRates,
    Question,
    rates_in_bins,
)
from attnsweep.orchestrator.analysis.rates.intervals import Pooling, Rate
from attnsweep.orchestrator.ledger.views import IS_JUDGED, literal, param_column
from attnsweep.search_spaces.dimensions import Categorical, Int
from attnsweep.search_spaces.sweep import Sweep

_FEWEST_TRIALS = 2
"""A cell with fewer trials than this is chosen as the best one only if no other cell can be chosen."""


class Explained(NamedTuple):
    """`share`: epsilon squared, the part of the variance between trials that lies between bins, chance taken off."""

    rates: ParameterRates
    share: float


class Cell(NamedTuple):
    """A cell of two parameters; `place`: the number of the bin on each axis."""

    place: tuple[int, ...]
    n_trials: int
    asked: Rate
    solved: Rate
    outcomes: Mapping[str, Rate]


@dataclass(frozen=True, slots=True)
class Regions:
    """The two parameters on which a rate depends most, the rate in each cell, and the best cell.

    Attributes:
        explained: In falling order, of all parameters that vary unconditionally.
        measure: The ending whose spread is explained: `solved` if the rate that was asked is the same in all trials.
        axes: The first two of `explained`, the one with fewer bins first; one axis if only one varies.
        cells: One for each pair of bins; the bins of the second axis vary fastest.
        best: The cell with the highest lower bound of the rate that is sought, or the lowest upper bound of one to
            avoid; cells of a single trial last. `None` if no training has the sought ending.
    """

    explained: tuple[Explained, ...]
    question: Question
    measure: Ending
    axes: tuple[ParameterRates, ...]
    cells: tuple[Cell, ...]
    best: Cell | None

    def rows(self) -> list[list[Cell]]:
        """The rows of a table that looks like a plot: the first parameter to the right, the second upwards."""
        n_rows = len(self.axes[1].bins)
        return [[cell for cell in self.cells if cell.place[1] == row] for row in reversed(range(n_rows))]

    def labels(self, cell: Cell) -> list[tuple[str, str]]:
        """Each parameter's name with the label of its bin."""
        return [(axis.parameter, axis.bins[at].label) for axis, at in zip(self.axes, cell.place, strict=True)]

    @property
    def best_by(self) -> str:
        """The criterion for the best cell."""
        bound = "highest lower" if self.question.wants_more else "lowest upper"
        return f"the {bound} bound of the {self.question.best_by.share_label}"


def read_regions(
    connection: duckdb.DuckDBPyConnection,
    by_parameter: Sequence[ParameterRates],
    pool: Pooling,
    question: Question,
    bins: int | None = None,
) -> Regions | None:
    """`None` if the sweep varies no parameter that all trials have."""
    swept = [rates for rates in by_parameter if not rates.where]
    if not swept:
        return None
    columns = "".join(f", {param_column(rates.parameter)}" for rates in swept)
    found = connection.execute(f"select distinct outcome from trainings where {IS_JUDGED}").fetchall()
    outcomes = sorted((outcome for (outcome,) in found), key=outcome_order)
    conditions = (question.ending.condition, "outcome = 'solved'", *(f"outcome = {literal(name)}" for name in outcomes))
    counted = ", ".join(f"count(*) filter ({IS_JUDGED} and {one}) as n{at}" for at, one in enumerate(conditions))
    numbers = "".join(f", n{at}" for at in range(len(conditions)))
    rows = connection.execute(
        f"with counted as (select trial, {counted} from trainings group by trial)"
        f" select n_judged{numbers}{columns} from trials join counted using (trial)"
        " where n_judged > 0 order by trial"
    ).fetchall()
    n_counts = 1 + len(conditions)
    n, *k_of = np.array([row[:n_counts] for row in rows], dtype=np.int64).reshape(-1, n_counts).T
    asked, solved = k_of[:2]
    varies = len(np.unique(asked / n)) > 1
    measure, share = (question.ending, asked / n) if varies else (SOLVED, solved / n)
    values = {rates.parameter: [row[n_counts + index] for row in rows] for index, rates in enumerate(swept)}
    swept = [rates for rates in swept if all(has_bin(rates.dimension, value) for value in values[rates.parameter])]
    if not swept:
        return None
    explained = [Explained(rates, _epsilon_squared(share, _places(rates, values, fine_bins))) for rates in swept]
    # The sort is stable, so parameters that explain none of the differences between trials keep the order of the search
    # space.
    explained.sort(key=lambda entry: -entry.share)
    binning = equal_bins(bins, cell_bins if len(explained) > 1 else fine_bins)
    counts = list(zip(n.tolist(), asked.tolist(), strict=True))
    chosen = [
        rates_in_bins(name, dimension, list(zip(values[name], counts, strict=True)), pool, binning)
        for name, dimension in ((entry.rates.parameter, entry.rates.dimension) for entry in explained[:2])
    ]
    axes = tuple(sorted(chosen, key=lambda axis: len(axis.bins)))
    places = [_places(axis, values, binning) for axis in axes]
    cells = tuple(
        _cell(at, places, n, k_of, outcomes, pool)
        for at in itertools.product(*(range(len(axis.bins)) for axis in axes))
    )
    return Regions(tuple(explained), question, measure, axes, cells, _best(cells, question))


def _places(axis: ParameterRates, values: Mapping[str, Sequence[object]], binning: Binning) -> NDArray[np.int64]:
    """For each trial the index of its bin."""
    axis_values = values[axis.parameter]
    return np.array(binning(axis.dimension, axis_values).place(axis_values), dtype=np.int64)


def _cell(
    at: tuple[int, ...],
    places: Sequence[NDArray[np.int64]],
    n: NDArray[np.int64],
    k_of: Sequence[NDArray[np.int64]],
    outcomes: Sequence[str],
    pool: Pooling,
) -> Cell:
    inside = np.logical_and.reduce([place == index for place, index in zip(places, at, strict=True)])
    n_inside = n[inside].tolist()
    asked, solved, *others = (pool(list(zip(n_inside, k[inside].tolist(), strict=True))) for k in k_of)
    return Cell(at, len(n_inside), asked, solved, dict(zip(outcomes, others, strict=True)))


def _epsilon_squared(share: NDArray[np.float64], place: NDArray[np.int64]) -> float:
    total = float(np.square(share - share.mean()).sum()) if len(share) else 0.0
    present, inverse = np.unique(place, return_inverse=True)
    n_left = len(share) - len(present)
    if total == 0.0 or n_left <= 0:
        return 0.0
    means = np.bincount(inverse, share) / np.bincount(inverse)
    within = float(np.square(share - means[inverse]).sum())
    return max((total - within - (len(present) - 1) * within / n_left) / total, 0.0)


def _best(cells: Sequence[Cell], question: Question) -> Cell | None:
    more = question.wants_more

    def merit(rated: tuple[Cell, Rate]) -> tuple[bool, float, float]:
        cell, rate = rated
        bounds = (rate.low or 0.0, rate.share or 0.0) if more else (-(rate.high or 0.0), -(rate.share or 0.0))
        return cell.n_trials >= _FEWEST_TRIALS, *bounds

    rated = [(cell, cell.solved if question.best_by == SOLVED else cell.asked) for cell in cells]
    candidates = [(cell, rate) for cell, rate in rated if rate.n and (rate.k or not more)]
    return max(candidates, key=merit)[0] if candidates else None


def read_diagram(connection: duckdb.DuckDBPyConnection, spec: Sweep, regions: Regions | None) -> PhaseDiagram | None:
    """Over the axes of `regions`; `None` unless these are two ranges of numbers: choices and few whole numbers have
    cells alone."""
    if regions is None or len(regions.axes) < 2 or not any(cell.n_trials for cell in regions.cells):
        return None
    if any(isinstance(axis.dimension, Categorical) or _is_each_number(axis) for axis in regions.axes):
        return None
    x, y = (axis.parameter for axis in regions.axes)
    return read_phase_diagram(connection, [spec], x, y, regions.question.ending)


def _is_each_number(axis: ParameterRates) -> bool:
    return isinstance(axis.dimension, Int) and all(bin_.low == bin_.high for bin_ in axis.bins)
