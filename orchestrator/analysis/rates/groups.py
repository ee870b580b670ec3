"""Groups of trials: the bins of one parameter or the cells of two, also of parameters that the space does not vary."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.labels import check_known, parameter_label
from attnsweep.orchestrator.analysis.rates.bins import Binning, coarse_bins
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Float, Int, Scalar, Varied
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_MOST_VALUES = 8
"""Up to this many distinct numbers get a bin each."""
_MANYFOLD = 10.0
"""An axis of positive numbers is logarithmic if the largest is at least this many times the smallest."""
_MOST_PARAMETERS = 2


@dataclass(frozen=True, slots=True)
class Group:
    """The trials whose parameter has one value, or a value in one bin."""

    label: str
    trials: frozenset[int]


def parameters_of(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Names the parameters for which a ledger has columns."""
    columns = [name for name, *_ in connection.execute("select * from trials limit 0").description]
    return [name.removeprefix("param_") for name in columns if name.startswith("param_")]


def check_parameter(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Raises a `UserError` if the ledger has no column for a parameter."""
    check_known(
        "parameter", name, parameters_of(connection), "a ledger with parameters", "use its name in the search space"
    )


def values_of(connection: duckdb.DuckDBPyConnection, name: str) -> dict[int, Scalar]:
    """Reads a parameter's value in each trial.

    Raises:
        UserError: For a parameter that the ledger has no column for.
    """
    check_parameter(connection, name)
    return dict(connection.execute(f"select trial, {param_column(name)} from trials order by trial").fetchall())


def dimension_of(
    specs: Sequence[Sweep], name: str, values: Mapping[int, Scalar]
) -> tuple[Varied | None, dict[int, Scalar]]:
    """Determines a parameter's kind and range: from the specs if they agree, else from the parameter's values.

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
    """Returns whether a parameter's axis is logarithmic: as the spec says for a range; by the span of its numbers for
    a list of choices."""
    if not numbers or min(numbers) <= 0:
        return False
    ranges = [range_ for spec in specs for range_ in _ranges(spec, name)]
    return all(range_.log for range_ in ranges) if ranges else max(numbers) / min(numbers) >= _MANYFOLD


def groups_by(
    specs: Sequence[Sweep], name: str, values: Mapping[int, Scalar], binning: Binning = coarse_bins
) -> list[Group]:
    """Groups trials by the bins of a parameter. Trials without a value form a separate group."""
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
    """A grouping of trials by the bins of up to two parameters.

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
        """The parameters' names as `attnsweep compare --by` takes them: `init_sigma,learning_rate`."""
        return ",".join(self.names)

    @property
    def bins(self) -> tuple[tuple[str, ...], ...]:
        """The labels of the bins, for each parameter."""
        return tuple(tuple(group.label for group in axis) for axis in self.axes)

    def across(self, other: "Crossing") -> "Crossing":
        """Combines two groupings of the same trials: crosses the bins of these parameters with the bins of the other
        ones."""
        return Crossing((*self.names, *other.names), (*self.axes, *other.axes), self.everything)

    def cells(self) -> dict[tuple[int, ...], Group]:
        """Returns the groups that hold trials, by the indices of their bins. The bins of the second parameter vary
        fastest."""
        cells = {}
        for place in itertools.product(*(range(len(axis)) for axis in self.axes)):
            parts = [axis[at] for axis, at in zip(self.axes, place, strict=True)]
            trials = self.everything.intersection(*(part.trials for part in parts))
            if trials:
                cells[place] = Group(" × ".join(part.label for part in parts) or "all", trials)
        return cells

    def groups(self) -> list[Group]:
        return list(self.cells().values())


def names_of(by: str | Sequence[str] | None, subject: str = "by") -> tuple[str, ...]:
    """Splits the argument `by` into names of parameters. `by` is one name, several names, or names separated by commas.

    Raises:
        UserError: For more than two names, or the same name twice.
    """
    given = () if by is None else by.split(",") if isinstance(by, str) else by
    names = tuple(name.strip() for name in given)
    if len(names) > _MOST_PARAMETERS or len(set(names)) < len(names):
        raise UserError(
            subject,
            given=",".join(names),
            expected="one parameter, or two different parameters",
            fix="name at most two parameters",
        )
    return names


def read_crossing(
    connection: duckdb.DuckDBPyConnection,
    specs: Sequence[Sweep],
    names: Sequence[str],
    binning: Binning = coarse_bins,
) -> Crossing:
    """Groups the trials of a ledger by the bins of the given parameters.

    Args:
        binning: For rates, `fine_bins` with one parameter and `cell_bins` with two.

    Raises:
        UserError: For a parameter that the ledger has no column for.
    """
    trials = frozenset(trial for (trial,) in connection.execute("select distinct trial from trainings").fetchall())
    axes = tuple(tuple(groups_by(specs, name, values_of(connection, name), binning)) for name in names)
    return Crossing(tuple(names), axes, trials)


def by_label(by: str) -> str:
    """Formats the parameters that an argument `by` names as the label of an axis."""
    return " × ".join(map(parameter_label, by.split(","))) if by else ""
