"""Trials in the bins of one parameter, or in the cells of two."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.rates.grouping import Group, groups_by, values_of
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_MOST_PARAMETERS = 2


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
