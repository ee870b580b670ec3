"""Bins of a parameter: decades of a logarithmic range, equal parts of a linear one, each value of a choice."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.search_spaces.dimensions import Categorical, Float, Int, Varied
from attnsweep.workloads.errors import UserError

_MOST_LINEAR_BINS = 5


def place_in_bins(
    dimension: Varied, values: Sequence[object]
) -> tuple[list[tuple[str, float | None, float | None]], list[int]]:
    """The bins of one parameter as (label, low, high), and for each value the number of its bin.

    A logarithmic range has a bin for each decade, a linear one up to five equal bins. Bins are half-open; only the last
    one includes its upper end. A categorical parameter has a bin for each value, whose ends are `None`.

    Raises:
        UserError: For a value that is not among the choices: the rows are of another sweep.
    """
    if isinstance(dimension, Categorical):
        if foreign := [value for value in values if value not in dimension.choices]:
            raise UserError(
                "DIR",
                given=f"a row with the parameter {value_label(foreign[0])}",
                expected=f"rows of sweep.json's search space, {', '.join(map(value_label, dimension.choices))}",
                fix="see what is wrong with: attnsweep audit DIR",
            )
        ranges: list[tuple[str, float | None, float | None]] = [
            (value_label(choice), None, None) for choice in dimension.choices
        ]
        return ranges, [dimension.choices.index(value) for value in values]
    edges = _edges(dimension)
    place = np.searchsorted(edges[1:-1], np.array(values, dtype=np.float64), side="right").tolist()
    return [_range(dimension, low, high) for low, high in itertools.pairwise(edges)], place


def _edges(dimension: Float | Int) -> list[float]:
    """The edges of the bins in rising order; a bin of whole numbers includes its lower edge but not its upper one."""
    if dimension.log:
        first = math.floor(math.log10(dimension.low))
        last = max(math.ceil(math.log10(dimension.high)), first + 1)
        return [float(f"1e{power}") for power in range(first, last + 1)]
    if isinstance(dimension, Int):
        n_values = dimension.high - dimension.low + 1
        n_bins = min(n_values, _MOST_LINEAR_BINS)
        return [float(dimension.low + n_values * index // n_bins) for index in range(n_bins + 1)]
    if dimension.low == dimension.high:
        return [dimension.low, dimension.high]
    return [float(edge) for edge in np.linspace(dimension.low, dimension.high, _MOST_LINEAR_BINS + 1)]


def _range(dimension: Float | Int, low: float, high: float) -> tuple[str, float, float]:
    if dimension.log:
        label = f"1e{round(math.log10(low))}..1e{round(math.log10(high))}"
    elif isinstance(dimension, Int):
        high -= 1
        label = f"{low:.0f}" if low == high else f"{low:.0f}..{high:.0f}"
    else:
        label = f"{low:.3g}..{high:.3g}"
    return label, max(low, dimension.low), min(high, dimension.high)
