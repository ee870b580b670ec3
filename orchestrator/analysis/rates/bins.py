"""The bins of one parameter: coarse bins, or bins as fine as the number of trials allows.

*Coarse* bins are the decades of a logarithmic range, up to five equal parts of a linear range, or the values of a
choice. They serve for curves and tests by parameter and for tables in a terminal. Rates have *fine* bins: all bins are
halved, on the scale of the axis, while the bin of the typical trial (the median over trials) keeps enough of the T
trials that have a value: at least 25, and at least

- T^(2/3) for the rate by one parameter. Where the trainings of a trial agree, the interval is then at most +- T^(-1/3).
- T^(3/4) / sqrt(2) on each axis for the cells of two parameters: about sqrt(T) / 2 trials in a cell, and an interval of
  at most +- 1.4 T^(-1/4).

With these powers the interval of a bin and the width of the bin shrink together, which is the best that averages over
bins can do for a rate that changes smoothly (Stone 1982). The bins depend on the trials' parameters, never on how they
ended, so intervals keep their coverage. Evenly drawn trials over five decades have finer bins than decades from 1,000
trials on, and finer cells from 2,500 on. Halving ends where it separates no more trials, as on a grid, and at 64 bins,
or 32 along each axis of a plane.

Source: Stone 1982, The Annals of Statistics 10 (the rates of convergence).
"""

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.search_spaces.dimensions import Categorical, Float, Int, Varied
from attnsweep.workloads.errors import UserError

_MOST_LINEAR_BINS = 5
_FEWEST_TRIALS = 25
"""The least number of trials in the typical bin made by halving: the interval is then at most +- 0.2."""
_MOST_BINS = 64
"""The most bins of one parameter, twice as many as along an axis of a plane: of more bins, most would be empty where
trials crowd."""


@dataclass(frozen=True, slots=True)
class Bins:
    """The bins of one parameter. A bin excludes its upper end, except for the last bin.

    Attributes:
        dimension: How the parameter varies.
        edges: The edges in rising order, on the scale of the axis: powers of ten if it is logarithmic. A bin of whole
            numbers includes its lower edge but not its upper one. Empty for a choice, which has a bin for each value.
    """

    dimension: Varied
    edges: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.dimension.choices) if isinstance(self.dimension, Categorical) else len(self.edges) - 1

    def ranges(self) -> list[tuple[str, float | None, float | None]]:
        """Returns (label, low, high) for each bin. The ends `low` and `high` are `None` for the choices of a
        categorical parameter."""
        if isinstance(self.dimension, Categorical):
            return [(value_label(choice), None, None) for choice in self.dimension.choices]
        return [_range(self.dimension, low, high) for low, high in itertools.pairwise(self.edges)]

    def place(self, values: Sequence[object]) -> list[int]:
        """Returns the index of the bin that each value is in.

        Raises:
            UserError: For a value that is not among the choices: the rows are from another sweep.
        """
        if isinstance(self.dimension, Categorical):
            choices = self.dimension.choices
            if foreign := [value for value in values if value not in choices]:
                choice_labels = ", ".join(map(value_label, choices))
                raise UserError(
                    "DIR",
                    given=f"a row in which this parameter has the value {value_label(foreign[0])}",
                    expected=f"one of the choices that sweep.json declares: {choice_labels}",
                    fix="check the sweep with: attnsweep audit DIR",
                )
            return [choices.index(value) for value in values]
        inner = [_value(self.dimension, edge) for edge in self.edges[1:-1]]
        places = np.searchsorted(inner, np.array(values, dtype=np.float64), side="right")
        return [int(place) for place in places]


Binning: TypeAlias = Callable[[Varied, Sequence[object]], Bins]
"""Makes bins from a parameter and its values in the trials: `coarse_bins`, `fine_bins` or `cell_bins`."""


def coarse_bins(dimension: Varied, _: Sequence[object] = ()) -> Bins:
    """Makes wide bins of a parameter without regard to the trials: decades, up to five equal parts, or one bin for
    each choice."""
    if isinstance(dimension, Categorical):
        return Bins(dimension, ())
    if dimension.log:
        first = math.floor(math.log10(dimension.low))
        last = max(math.ceil(math.log10(dimension.high)), first + 1)
        return Bins(dimension, tuple(map(float, range(first, last + 1))))
    if isinstance(dimension, Int):
        n_values = dimension.high - dimension.low + 1
        n_bins = min(n_values, _MOST_LINEAR_BINS)
        return Bins(dimension, tuple(float(dimension.low + n_values * at // n_bins) for at in range(n_bins + 1)))
    if dimension.low == dimension.high:
        return Bins(dimension, (dimension.low, dimension.high))
    return Bins(dimension, tuple(np.linspace(dimension.low, dimension.high, _MOST_LINEAR_BINS + 1).tolist()))


def fine_bins(dimension: Varied, values: Sequence[object]) -> Bins:
    """Makes the bins for a rate as a function of one parameter, from the parameter's value in each trial."""
    return _halved(dimension, values, len(values) ** (2 / 3), _MOST_BINS)


def cell_bins(dimension: Varied, values: Sequence[object]) -> Bins:
    """Makes the bins along one axis of a plane of two parameters, from the axis's value in each trial."""
    return _halved(dimension, values, len(values) ** (3 / 4) / math.sqrt(2), _MOST_BINS // 2)


def _halved(dimension: Varied, values: Sequence[object], fewest: float, most: int) -> Bins:
    bins = halves = coarse_bins(dimension)
    if isinstance(dimension, Categorical):
        return bins
    n_values, n_parted = len(set(values)), len(set(bins.place(values)))
    while n_parted < n_values and 2 * len(halves) <= most:
        halves = Bins(dimension, _halves(dimension, halves.edges))
        place = np.array(halves.place(values))
        if np.median(np.bincount(place)[place]) < max(fewest, _FEWEST_TRIALS):
            break
        # The loop goes on after a halving that separates no trials, because the next halving may separate some.
        if len(set(place.tolist())) > n_parted:
            bins, n_parted = halves, len(set(place.tolist()))
    return bins


def _halves(dimension: Float | Int, edges: tuple[float, ...]) -> tuple[float, ...]:
    """Splits every bin in halves and returns the edges. Drops bins outside the range and, for an `Int`, those without
    a whole number."""
    halves = [edges[0]]
    for low, high in itertools.pairwise(edges):
        middle = (low + high) / 2
        if isinstance(dimension, Int):
            middle = middle if dimension.log else float(math.floor(middle))
            least, next_, end = (math.ceil(_value(dimension, edge)) for edge in (low, middle, high))
            halves += [middle] if least < next_ < end else []
        else:
            halves.append(middle)
        halves.append(high)
    if dimension.log:
        values = [_value(dimension, edge) for edge in halves]
        first = bisect.bisect_right(values, dimension.low) - 1
        halves = halves[first : max(bisect.bisect_left(values, dimension.high), first + 1) + 1]
    return tuple(halves)


def _value(dimension: Float | Int, edge: float) -> float:
    """Converts a bin's edge to a value of the parameter. An edge at a whole power of ten gives an exact value."""
    if not dimension.log:
        return edge
    return float(f"1e{edge:.0f}") if edge == round(edge) else 10**edge


def _range(dimension: Float | Int, low: float, high: float) -> tuple[str, float, float]:
    label = "..".join(_power_label(edge) for edge in (low, high))
    if not dimension.log and isinstance(dimension, Int):
        high -= 1
        label = f"{low:.0f}" if low == high else f"{low:.0f}..{high:.0f}"
    elif not dimension.log:
        label = f"{low:.3g}..{high:.3g}"
    return label, max(_value(dimension, low), dimension.low), min(_value(dimension, high), dimension.high)


def _power_label(edge: float) -> str:
    """Formats a logarithmic edge: `1e-4` for -4, `3.16e-4` for -3.5."""
    power = math.floor(edge)
    return f"1e{power}" if edge == power else f"{10 ** (edge - power):.2f}e{power}"
