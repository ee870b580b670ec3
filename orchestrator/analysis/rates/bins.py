"""Groups of trials for rates: the bins of one parameter, or the cells of two (a bin of each). The parameter may also be
one that differs only between sweeps.

*Coarse* bins are the decades of a logarithmic range, up to five equal parts of a linear range, or the values of a
choice. They serve for curves by parameter and for tables in a terminal. Rates have *fine* bins: all bins are
halved repeatedly, on the scale of the axis, as long as they keep enough trials. What counts is the median, over trials,
of the number of trials in the same bin. If T trials have a value, the median has to be at least 25, and at least

- T^(2/3) for the rate by one parameter. Where the trainings of a trial agree, the interval is then at most +- T^(-1/3).
- T^(3/4) / sqrt(2) on each axis for the cells of two parameters: about sqrt(T) / 2 trials in a cell, and an interval of
  at most +- 1.4 T^(-1/4).

With these powers the interval of a bin and the width of the bin shrink together, which is the best that averages over
bins can do for a rate that changes smoothly (Stone 1982). The bins depend on the trials' parameters, never on how they
ended, so intervals keep their coverage. Halving ends where it separates no more trials, as on a grid, and at 64 bins,
or 32 along each axis of a plane.

Source: Stone 1982, The Annals of Statistics 10 (the rates of convergence).
"""

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import duckdb
import numpy as np

from attnsweep.orchestrator.analysis.labels import check_known, parameter_label, value_label
from attnsweep.orchestrator.ledger.views import param_column
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Float, Int, Scalar, Varied
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_MOST_LINEAR_BINS = 5
_FEWEST_TRIALS = 25
"""Bins are halved only while a typical bin keeps this many trials: the interval of its rate is then at most +- 0.2."""
_MOST_BINS = 64
"""The most bins of one parameter, twice as many as along an axis of a plane: with more, most bins would be empty if the
trials crowd in a part of the range."""


@dataclass(frozen=True, slots=True)
class Bins:
    """The bins into which the values of one parameter are divided.

    Attributes:
        edges: In rising order, on the scale of the axis: powers of ten if it is logarithmic. A bin of whole numbers
            includes its lower edge but not its upper one. Empty for a choice, which has a bin for each value.
    """

    dimension: Varied
    edges: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.dimension.choices) if isinstance(self.dimension, Categorical) else len(self.edges) - 1

    def ranges(self) -> list[tuple[str, float | None, float | None]]:
        """(label, low, high) of each bin."""
        if isinstance(self.dimension, Categorical):
            return [(value_label(choice), None, None) for choice in self.dimension.choices]
        return [_range(self.dimension, low, high) for low, high in itertools.pairwise(self.edges)]

    def place(self, values: Sequence[object]) -> list[int]:
        if isinstance(self.dimension, Categorical):
            choices = self.dimension.choices
            if foreign := [value for value in values if value not in choices]:
                choice_labels = ", ".join(map(value_label, choices))
                given = f"a row in which a parameter has the value {value_label(foreign[0])}"
                expected = f"one of the choices that sweep.json declares: {choice_labels}"
                raise UserError("DIR", given=given, expected=expected, fix="check the sweep with: attnsweep audit DIR")
            return [choices.index(value) for value in values]
        inner = [_value(self.dimension, edge) for edge in self.edges[1:-1]]
        places = np.searchsorted(inner, np.array(values, dtype=np.float64), side="right")
        return [int(place) for place in places]


def has_bin(dimension: Varied, value: object) -> bool:
    """Whether a value has a bin: null, which also marks trials that do not use the parameter, only as a choice."""
    return value is not None or (isinstance(dimension, Categorical) and None in dimension.choices)


Binning: TypeAlias = Callable[[Varied, Sequence[object]], Bins]
"""Makes bins from a parameter and its values in the trials: `coarse_bins`, `fine_bins` or `cell_bins`."""


def coarse_bins(dimension: Varied, _: Sequence[object] = ()) -> Bins:
    """From the range alone: decades, up to five equal parts of a linear range, or one bin per choice."""
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
    """For a rate by one parameter: the more trials, the narrower."""
    return _halved(dimension, values, len(values) ** (2 / 3), _MOST_BINS)


def cell_bins(dimension: Varied, values: Sequence[object]) -> Bins:
    """For one of two parameters, whose cells have rates: the more trials, the narrower."""
    return _halved(dimension, values, len(values) ** (3 / 4) / math.sqrt(2), _MOST_BINS // 2)


def equal_bins(n: int | None, otherwise: Binning) -> Binning:
    """`n` equal parts of a range, on the scale of its axis, or fewer where it has fewer whole numbers; `otherwise`
    without `n`."""
    if n is None:
        return otherwise
    if n < 1:
        raise UserError("bins", given=n, expected="at least 1", fix="leave it out for bins by the number of trials")

    def binning(dimension: Varied, _: Sequence[object]) -> Bins:
        if isinstance(dimension, Categorical) or dimension.low == dimension.high:
            return coarse_bins(dimension)
        if isinstance(dimension, Int) and not dimension.log:
            n_values = dimension.high - dimension.low + 1
            parts = min(n, n_values)
            return Bins(dimension, tuple(float(dimension.low + n_values * at // parts) for at in range(parts + 1)))
        ends = (
            (math.log10(dimension.low), math.log10(dimension.high))
            if dimension.log
            else (dimension.low, dimension.high)
        )
        return Bins(dimension, tuple(np.linspace(*ends, n + 1).tolist()))

    return binning


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
        # These halved bins are used only if they separate more of the drawn values than the unhalved ones. If they do
        # not, the loop goes on all the same, because bins that are halved once more may separate more.
        if len(set(place.tolist())) > n_parted:
            bins, n_parted = halves, len(set(place.tolist()))
    return bins


def _halves(dimension: Float | Int, edges: tuple[float, ...]) -> tuple[float, ...]:
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
    """`1e-4` for -4, `3.16e-4` for -3.5."""
    power = math.floor(edge)
    return f"1e{power}" if edge == power else f"{10 ** (edge - power):.2f}e{power}"


_MOST_VALUES = 8
"""Up to this many distinct numbers get a bin each."""
_MANYFOLD = 10.0
"""An axis of positive numbers is logarithmic if the largest is at least this many times the smallest."""
_MOST_PARAMETERS = 2


@dataclass(frozen=True, slots=True)
class Group:
    """The trials with one value, or in one bin."""

    label: str
    trials: frozenset[int]


def parameters_of(connection: duckdb.DuckDBPyConnection) -> list[str]:
    columns = [name for name, *_ in connection.execute("select * from trials limit 0").description]
    return [name.removeprefix("param_") for name in columns if name.startswith("param_")]


def check_parameter(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    check_known(
        "parameter", name, parameters_of(connection), "a ledger with parameters", "use its name in the search space"
    )


def values_of(connection: duckdb.DuckDBPyConnection, name: str) -> dict[int, Scalar]:
    """By trial. Raises a `UserError` if there is no column for the parameter."""
    check_parameter(connection, name)
    return dict(connection.execute(f"select trial, {param_column(name)} from trials order by trial").fetchall())


def dimension_of(
    specs: Sequence[Sweep], name: str, values: Mapping[int, Scalar]
) -> tuple[Varied | None, dict[int, Scalar]]:
    """A parameter's range or choices, and its value in each trial.

    The former is taken from the specs if they agree, else from the values, and is `None` if there are no trials.
    """
    known: dict[int, Scalar] = {trial: value for trial, value in values.items() if value is not None}
    declared = specs[0].varied().get(name)
    if declared is not None and all(spec.varied().get(name) == declared for spec in specs):
        return declared, {trial: value for trial, value in values.items() if has_bin(declared, value)}
    distinct = list(dict.fromkeys(known.values()))
    numbers = [value for value in distinct if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(distinct) or len(distinct) <= _MOST_VALUES:
        others = sorted((value for value in {*values.values()} if value not in numbers), key=str)
        choices = (*others, *sorted(numbers))
        return (Categorical(choices=choices) if choices else None), dict(values)
    low, high, log = min(numbers), max(numbers), is_logarithmic(specs, name, numbers)
    if all(isinstance(value, int) for value in numbers):
        return Int(low=int(low), high=int(high), log=log), known
    return Float(low=float(low), high=float(high), log=log), known


def is_logarithmic(specs: Sequence[Sweep], name: str, numbers: Sequence[float]) -> bool:
    """Whether figures show the parameter on a logarithmic axis."""
    if not numbers or min(numbers) <= 0:
        return False
    ranges = [range_ for spec in specs for range_ in _ranges(spec, name)]
    return all(range_.log for range_ in ranges) if ranges else max(numbers) / min(numbers) >= _MANYFOLD


def groups_by(
    specs: Sequence[Sweep], name: str, values: Mapping[int, Scalar], binning: Binning = coarse_bins
) -> list[Group]:
    """Trials without a value form a group of their own."""
    dimension, kept = dimension_of(specs, name, values)
    groups = [Group("null", frozenset(values.keys() - kept.keys()))]
    if dimension is not None:
        bins = binning(dimension, list(kept.values()))
        inside: list[list[int]] = [[] for _ in range(len(bins))]
        for trial, at in zip(kept, bins.place(list(kept.values())), strict=True):
            inside[at].append(trial)
        groups += [Group(label, frozenset(trials)) for (label, _, _), trials in zip(bins.ranges(), inside, strict=True)]
    return [group for group in groups if group.trials]


def _ranges(spec: Sweep, name: str) -> list[Float | Int]:
    dimension = spec.parameters().get(name)
    branches = (dimension.then, dimension.otherwise) if isinstance(dimension, Conditional) else (dimension,)
    return [branch for branch in branches if isinstance(branch, Float | Int)]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Trials by the bins of up to two parameters; without parameters, all are one group."""

    names: tuple[str, ...]
    axes: tuple[tuple[Group, ...], ...]
    everything: frozenset[int]

    @property
    def by(self) -> str:
        """As `attnsweep compare --by` takes them: `init_sigma,learning_rate`."""
        return ",".join(self.names)

    @property
    def bins(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(group.label for group in axis) for axis in self.axes)

    def cells(self) -> dict[tuple[int, ...], Group]:
        """Groups without trials are left out."""
        cells = {}
        for place in itertools.product(*(range(len(axis)) for axis in self.axes)):
            parts = [axis[at] for axis, at in zip(self.axes, place, strict=True)]
            trials = self.everything.intersection(*(part.trials for part in parts))
            if trials:
                cells[place] = Group(" × ".join(part.label for part in parts) or "all", trials)
        return cells


def names_of(by: str | Sequence[str] | None, subject: str = "by") -> tuple[str, ...]:
    """One name, several, or some separated by commas. Raises a `UserError` for more than two, or one twice."""
    given = () if by is None else by.split(",") if isinstance(by, str) else by
    names = tuple(name.strip() for name in given)
    if len(names) > _MOST_PARAMETERS or len(set(names)) < len(names):
        fix = "name at most two parameters"
        raise UserError(subject, given=",".join(names), expected="one parameter, or two different parameters", fix=fix)
    return names


def read_crossing(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], names: Sequence[str], binning: Binning = coarse_bins
) -> Crossing:
    trials = frozenset(trial for (trial,) in connection.execute("select distinct trial from trainings").fetchall())
    axes = tuple(tuple(groups_by(specs, name, values_of(connection, name), binning)) for name in names)
    return Crossing(tuple(names), axes, trials)


def by_label(by: str) -> str:
    return " × ".join(map(parameter_label, by.split(","))) if by else ""
