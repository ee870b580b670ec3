"""Bins of a parameter's values, and groups of trials by the bins of parameters.

*Coarse* bins are the decades of a logarithmic range, up to five equal parts of a linear range, or the values of a
choice. *Fine* bins divide each coarse one into 2, 4, 8 ... equal parts on the scale of the axis, but into no more bins
than distinct values, as long as T evenly spread trials put at least 25 into each bin, and at least

- T^(2/3) for the rate by one parameter. Where the trainings of a trial agree, the interval is then at most +- T^(-1/3).
- T^(3/4) / sqrt(2) on each axis for the cells of two parameters: about sqrt(T) / 2 trials in a cell, and an interval of
  at most +- 1.4 T^(-1/4).

So the interval of a bin and its width shrink together, which is the best that averages over bins can do for a rate that
changes smoothly. Bins depend on the trials' parameters, never on how they ended, so intervals keep their coverage.

Source: Stone 1982, The Annals of Statistics 10 (the rates of convergence).
"""

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import duckdb
import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.labels import check_known, value_label
from attnsweep.orchestrator.ledger.views import names_with, param_column
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Float, Int, Scalar, Varied
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_MAX_LINEAR_BINS = 5
_MIN_TRIALS = 25
"""In a fine bin; the interval of its rate is then at most +- 0.2."""
_MAX_VALUES = 8
"""Of an undeclared parameter: up to this many distinct numbers get a bin each."""
_LOG_RATIO = 10.0
"""Undeclared positive numbers are on a logarithmic axis from this ratio of the largest to the smallest on."""


@dataclass(frozen=True, slots=True)
class Bins:
    """`edges`: in rising order, from the range's lower end to its upper one; a whole number's upper edge is the next
    number. Empty for a choice, which has a bin for each value."""

    dimension: Varied
    edges: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.dimension.choices) if isinstance(self.dimension, Categorical) else len(self.edges) - 1

    def ranges(self) -> list[tuple[str, float | None, float | None]]:
        """(label, low, high) of each bin; of real numbers only the last one includes its upper end."""
        match self.dimension:
            case Categorical(choices=choices):
                return [(value_label(choice), None, None) for choice in choices]
            case Int():
                ends = [(low, high - 1) for low, high in itertools.pairwise(self.edges)]
                return [(f"{low:.0f}" if low == high else f"{low:.0f}..{high:.0f}", low, high) for low, high in ends]
        label = _power_label if self.dimension.log else "{:.3g}".format
        return [(f"{label(low)}..{label(high)}", low, high) for low, high in itertools.pairwise(self.edges)]

    def place(self, values: Sequence[object]) -> NDArray[np.int64]:
        """The number of each value's bin."""
        if isinstance(self.dimension, Categorical):
            choices = self.dimension.choices
            if foreign := [value for value in values if value not in choices]:
                given = f"a row in which a parameter has the value {value_label(foreign[0])}"
                expected = f"one of the choices that sweep.json declares: {', '.join(map(value_label, choices))}"
                raise UserError("DIR", given=given, expected=expected, fix="check the sweep with: attnsweep audit DIR")
            return np.array([choices.index(value) for value in values], np.int64)
        return np.searchsorted(self.edges[1:-1], np.array(values, dtype=np.float64), side="right").astype(np.int64)


Binning: TypeAlias = Callable[[Varied, Sequence[object]], Bins]
"""From a parameter and its values in the trials: `coarse_bins`, `fine_bins` or `cell_bins`."""


def has_bin(dimension: Varied, value: object) -> bool:
    """Null, which also marks trials that do not use the parameter, has a bin only as a choice."""
    return value is not None or (isinstance(dimension, Categorical) and None in dimension.choices)


def coarse_bins(dimension: Varied, _: Sequence[object] = ()) -> Bins:
    """From the range alone: decades, up to five equal parts of a linear range, or one bin per choice."""
    if isinstance(dimension, Categorical) or not dimension.log:
        return _divided(dimension, _MAX_LINEAR_BINS)
    powers = range(math.floor(math.log10(dimension.low)), math.ceil(math.log10(dimension.high)) + 1)
    decades = (float(f"1e{power}") for power in powers)
    low, high = _ends(dimension)
    return Bins(dimension, (low, *(edge for edge in decades if low < edge < high), high))


def fine_bins(dimension: Varied, values: Sequence[object]) -> Bins:
    """For a rate by one parameter: the more trials, the narrower."""
    return _finer(dimension, values, len(values) ** (2 / 3))


def cell_bins(dimension: Varied, values: Sequence[object]) -> Bins:
    """For one of two parameters, whose cells have rates: the more trials, the narrower."""
    return _finer(dimension, values, len(values) ** (3 / 4) / math.sqrt(2))


def equal_bins(n: int | None, otherwise: Binning) -> Binning:
    """`n` equal parts of a range, on the scale of its axis; `otherwise` without `n`."""
    return otherwise if n is None else lambda dimension, _: _divided(dimension, n)


def _finer(dimension: Varied, values: Sequence[object], trials_per_bin: float) -> Bins:
    coarse = coarse_bins(dimension)
    n_parts = len(values) / (max(trials_per_bin, _MIN_TRIALS) * len(coarse))
    # Finer bins than values, as on a grid, would be empty.
    return _divided(dimension, min(2 ** int(math.log2(max(n_parts, 1))), -(-len(set(values)) // len(coarse))), coarse)


def _divided(dimension: Varied, n: int, coarse: Bins | None = None) -> Bins:
    """Each of the bins, or else the range, in `n` equal parts, or fewer where it has fewer whole numbers."""
    if isinstance(dimension, Categorical):
        return Bins(dimension)
    ends = _ends(dimension) if coarse is None else coarse.edges
    edges = [ends[0]]
    for low, high in itertools.pairwise(ends):
        inner = (np.geomspace if dimension.log else np.linspace)(low, high, max(n, 1) + 1)[1:-1]
        edges += [*(np.ceil(inner - 1e-09) if isinstance(dimension, Int) else inner).tolist(), high]
    return Bins(dimension, tuple(dict.fromkeys(edges)) if len(set(edges)) > 1 else tuple(edges[:2]))


def _ends(dimension: Float | Int) -> tuple[float, float]:
    return float(dimension.low), float(dimension.high + isinstance(dimension, Int))


def _power_label(edge: float) -> str:
    """`1e-4`, `3.16e-4`."""
    mantissa, power = f"{edge:.2e}".split("e")
    return f"{float(mantissa):g}e{int(power)}"


def values_of(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> dict[str, dict[int, Scalar]]:
    """By parameter and trial. Raises UserError if there is no column for a parameter."""
    for name in names:
        fix = "use its name in the search space"
        check_known("parameter", name, names_with(connection, "param_"), "a ledger with parameters", fix)
    columns = "".join(f", any_value({param_column(name)})" for name in names)
    rows = connection.execute(f"select trial{columns} from trainings group by trial order by trial").fetchall()
    return {name: {row[0]: row[column] for row in rows} for column, name in enumerate(names, 1)}


def dimension_of(
    specs: Sequence[Sweep], name: str, values: Mapping[int, Scalar]
) -> tuple[Varied | None, dict[int, Scalar]]:
    """A parameter's range or choices, and its value in each trial that has one. The former is the specs' if they agree,
    else made from the values; `None` if there are no trials."""
    declared = specs[0].varied().get(name)
    if declared is not None and all(spec.varied().get(name) == declared for spec in specs):
        return declared, {trial: value for trial, value in values.items() if has_bin(declared, value)}
    known: dict[int, Scalar] = {trial: value for trial, value in values.items() if value is not None}
    distinct = list(dict.fromkeys(known.values()))
    numbers = [value for value in distinct if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(distinct) or len(distinct) <= _MAX_VALUES:
        others = sorted((value for value in {*values.values()} if value not in numbers), key=str)
        choices = (*others, *sorted(numbers))
        return (Categorical(choices=choices) if choices else None), dict(values)
    low, high, log = min(numbers), max(numbers), is_logarithmic(specs, name, numbers)
    if all(isinstance(value, int) for value in numbers):
        return Int(low=int(low), high=int(high), log=log), known
    return Float(low=float(low), high=float(high), log=log), known


def is_logarithmic(specs: Sequence[Sweep], name: str, numbers: Sequence[float]) -> bool:
    """Whether bins and figures have a logarithmic axis for it."""
    if not numbers or min(numbers) <= 0:
        return False
    declared = [spec.parameters().get(name) for spec in specs]
    parts = [(each.then, each.otherwise) if isinstance(each, Conditional) else (each,) for each in declared]
    ranges = [part for each in parts for part in each if isinstance(part, Float | Int)]
    return all(part.log for part in ranges) if ranges else max(numbers) / min(numbers) >= _LOG_RATIO


@dataclass(frozen=True, slots=True)
class Groups:
    """Trials by the bins of up to two parameters; without parameters, all are one group.

    Attributes:
        labels: Of each parameter's bins; the first is `null` if trials lack a value.
        places: The numbers of each trial's bins.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    places: Mapping[int, tuple[int, ...]]

    def label(self, place: tuple[int, ...]) -> dict[str, str]:
        """The labels of its bins, by parameter."""
        return {name: labels[at] for name, labels, at in zip(self.names, self.labels, place, strict=True)}

    def cells(self) -> dict[tuple[int, ...], list[int]]:
        """The trials of each group that has some, in the order of bins."""
        cells: dict[tuple[int, ...], list[int]] = {}
        for trial in sorted(self.places):
            cells.setdefault(self.places[trial], []).append(trial)
        return dict(sorted(cells.items()))


def group_trials(
    specs: Sequence[Sweep],
    values: Mapping[str, Mapping[int, Scalar]],
    trials: Collection[int],
    binning: Binning = coarse_bins,
) -> Groups:
    """`values`: by parameter and trial."""
    labels, axes = [], []
    for name, of_trial in values.items():
        dimension, kept = dimension_of(specs, name, of_trial)
        if dimension is None:  # there are no trials
            return Groups(tuple(values), ((),) * len(values), {})
        bins = binning(dimension, [*kept.values()])
        is_lacking = len(kept) < len(of_trial)
        labels.append(("null",) * is_lacking + tuple(label for label, _, _ in bins.ranges()))
        place = dict(zip(kept, (bins.place([*kept.values()]) + is_lacking).tolist(), strict=True))
        axes.append(place)
    places = {trial: tuple(place.get(trial, 0) for place in axes) for trial in trials}
    return Groups(tuple(values), tuple(labels), places)


def read_groups(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], names: Sequence[str], binning: Binning = coarse_bins
) -> Groups:
    trials = [trial for (trial,) in connection.execute("select distinct trial from trainings").fetchall()]
    return group_trials(specs, values_of(connection, names), trials, binning)


def names_of(by: str | Sequence[str] | None, subject: str = "by") -> tuple[str, ...]:
    """`by`: a name, several, or some separated by commas. Raises UserError for more than two, or one twice."""
    given = () if by is None else by.split(",") if isinstance(by, str) else by
    names = tuple(name.strip() for name in given)
    if len(names) > 2 or len(set(names)) < len(names):
        fix = "name at most two parameters"
        raise UserError(subject, given=",".join(names), expected="one parameter, or two different parameters", fix=fix)
    return names
