"""Trials in groups: in the bins of any parameter, whether or not the search space says how it varies, or of two."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from attnsweep.orchestrator.analysis.labels import check_known, parameter_label, value_label
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Float, Int, Scalar, Varied
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_MOST_LINEAR_BINS = 5
_MOST_VALUES = 8
"""Up to this many distinct numbers get a bin each."""
_MANYFOLD = 10.0
"""The axis of positive numbers is logarithmic if the largest is at least this many times the smallest."""
_MOST_PARAMETERS = 2


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


@dataclass(frozen=True, slots=True)
class Group:
    """The trials whose parameter has one value, or a value in one bin."""

    label: str
    trials: frozenset[int]


def parameters_of(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The names of the parameters that a ledger has columns for."""
    columns = [name for name, *_ in connection.execute("select * from trials limit 0").description]
    return [name.removeprefix("param_") for name in columns if name.startswith("param_")]


def check_parameter(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Refuses a parameter that the ledger has no column for, with a `UserError`."""
    check_known(
        "parameter", name, parameters_of(connection), "a ledger with parameters", "name it as in the search space"
    )


def values_of(connection: duckdb.DuckDBPyConnection, name: str) -> dict[int, Scalar]:
    """A parameter's value in each trial.

    Raises:
        UserError: For a parameter that the ledger has no column for.
    """
    check_parameter(connection, name)
    return dict(connection.execute(f"select trial, {param_column(name)} from trials order by trial").fetchall())


def dimension_of(
    specs: Sequence[Sweep], name: str, values: Mapping[int, Scalar]
) -> tuple[Varied | None, dict[int, Scalar]]:
    """How a parameter varies: as the specs say if they agree, else as its values suggest.

    If the parameter is a choice among few values, null has a bin too; otherwise a trial with null has no bin.

    Returns:
        The dimension, `None` if no trial has a bin; and the values of the trials that have one.
    """
    known: dict[int, Scalar] = {trial: value for trial, value in values.items() if value is not None}
    declared = specs[0].varied().get(name)
    if declared is not None and all(spec.varied().get(name) == declared for spec in specs):
        is_choice = isinstance(declared, Categorical) and None in declared.choices
        return declared, dict(values) if is_choice else known
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
    """Whether a parameter's axis is logarithmic: for a range the spec decides, for a list of numbers their span."""
    if not numbers or min(numbers) <= 0:
        return False
    ranges = [each for spec in specs for each in _ranges(spec, name)]
    return all(each.log for each in ranges) if ranges else max(numbers) / min(numbers) >= _MANYFOLD


def groups_by(specs: Sequence[Sweep], name: str, values: Mapping[int, Scalar]) -> list[Group]:
    """The trials in each bin of a parameter; trials without a value form a group of their own."""
    dimension, kept = dimension_of(specs, name, values)
    groups = [Group("null", frozenset(values.keys() - kept.keys()))]
    if dimension is not None:
        ranges, place = place_in_bins(dimension, list(kept.values()))
        inside: list[list[int]] = [[] for _ in ranges]
        for trial, at in zip(kept, place, strict=True):
            inside[at].append(trial)
        groups += [Group(label, frozenset(trials)) for (label, _, _), trials in zip(ranges, inside, strict=True)]
    return [group for group in groups if group.trials]


def _ranges(spec: Sweep, name: str) -> list[Float | Int]:
    dimension = spec.parameters().get(name)
    branches = (dimension.then, dimension.otherwise) if isinstance(dimension, Conditional) else (dimension,)
    return [each for each in branches if isinstance(each, Float | Int)]


@dataclass(frozen=True, slots=True)
class Crossing:
    """The bins of up to two parameters.

    Attributes:
        names: The parameters; none for one group of all trials.
        axes: For each parameter its bins that hold trials.
        everything: All trials.
    """

    names: tuple[str, ...]
    axes: tuple[tuple[Group, ...], ...]
    everything: frozenset[int]

    @property
    def by(self) -> str:
        """The names as `attnsweep compare --by` takes them: `init_sigma,learning_rate`."""
        return ",".join(self.names)

    @property
    def bins(self) -> tuple[tuple[str, ...], ...]:
        """The labels of the bins, for each parameter."""
        return tuple(tuple(group.label for group in axis) for axis in self.axes)

    def across(self, other: "Crossing") -> "Crossing":
        """The bins of these parameters and of those of another crossing of the same trials."""
        return Crossing((*self.names, *other.names), (*self.axes, *other.axes), self.everything)

    def cells(self) -> dict[tuple[int, ...], Group]:
        """The groups that hold trials, by the numbers of their bins; the second parameter runs fastest."""
        found = {}
        for place in itertools.product(*(range(len(axis)) for axis in self.axes)):
            parts = [axis[at] for axis, at in zip(self.axes, place, strict=True)]
            trials = self.everything.intersection(*(part.trials for part in parts))
            if trials:
                found[place] = Group(" × ".join(part.label for part in parts) or "all", trials)
        return found

    def groups(self) -> list[Group]:
        """The groups that hold trials."""
        return list(self.cells().values())


def names_of(by: str | Sequence[str] | None, subject: str = "by") -> tuple[str, ...]:
    """The parameters of an argument `by`: a name, or several, or names with commas between them.

    Raises:
        UserError: For more than two names, or the same name twice.
    """
    given = () if by is None else by.split(",") if isinstance(by, str) else by
    names = tuple(name.strip() for name in given)
    if len(names) > _MOST_PARAMETERS or len(set(names)) < len(names):
        raise UserError(
            subject, given=",".join(names), expected="one parameter, or two different ones", fix="leave some out"
        )
    return names


def read_crossing(connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], names: Sequence[str]) -> Crossing:
    """The trials of a ledger in the bins of these parameters.

    Raises:
        UserError: For a parameter that the ledger has no column for.
    """
    trials = frozenset(trial for (trial,) in connection.execute("select distinct trial from trainings").fetchall())
    axes = tuple(tuple(groups_by(specs, name, values_of(connection, name))) for name in names)
    return Crossing(tuple(names), axes, trials)


def by_label(by: str) -> str:
    """The parameters of a `by` as an axis names them."""
    return " × ".join(map(parameter_label, by.split(","))) if by else ""
