"""Trials in groups by any parameter, whether or not the search space says how it varies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.rates.bins import place_in_bins
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Float, Int, Scalar, Varied
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError, did_you_mean

_MOST_VALUES = 8
"""Up to this many distinct numbers get a bin each."""
_MANYFOLD = 10.0
"""The axis of positive numbers is logarithmic if the largest is at least this many times the smallest."""


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
    known = parameters_of(connection)
    if name not in known:
        raise UserError(
            "parameter",
            given=name,
            expected=f"one of {', '.join(known)}",
            fix=did_you_mean(name, known, otherwise="name it as in the search space"),
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

    Args:
        specs: The specs of the sweeps.
        name: The parameter's name.
        values: The parameter's value in each trial.

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
    """The trials in each bin of a parameter; trials without a value form a group of their own.

    Args:
        specs: The specs of the sweeps.
        name: The parameter's name.
        values: The parameter's value in each trial.
    """
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
    dimension = spec.space.get(name)
    branches = (dimension.then, dimension.otherwise) if isinstance(dimension, Conditional) else (dimension,)
    return [each for each in branches if isinstance(each, Float | Int)]
