"""One sweep, or several of one workload, opened for analysis."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import duckdb
import pyarrow as pa

from attnsweep.orchestrator.analysis.importance import Importance, importance
from attnsweep.orchestrator.analysis.onset.onset import Onset, OnsetCurve, onset_curves, outcome_onsets
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram, read_phase_diagram
from attnsweep.orchestrator.analysis.rates.answers import OutcomeRates, StuckRates, outcome_rates
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    ParameterRates,
    rates_by,
    rates_in_bins,
    stuck_counts,
    stuck_rate,
    swept_names,
)
from attnsweep.orchestrator.analysis.rates.grouping import Group, dimension_of, groups_by, parameters_of, values_of
from attnsweep.orchestrator.analysis.rates.intervals import pooling, trials_count_once
from attnsweep.orchestrator.analysis.roles.history import role_histories
from attnsweep.orchestrator.analysis.roles.results import layer_names_of, layer_title
from attnsweep.orchestrator.ledger.query import answer
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.orchestrator.ledger.verification import naming_damage
from attnsweep.orchestrator.ledger.views import connect
from attnsweep.orchestrator.storage.location import Location
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.dimensions import Categorical
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.vocabulary import OUTCOMES

TableFormat: TypeAlias = Literal["arrow", "pandas", "polars"]

_TRIALS_APART = 1_000_000
"""The distance between the numbers of trial 0 of two sweeps; no sweep has as many trials."""


@dataclass(frozen=True)
class SweepData:
    """A sweep's tables, and answers computed from them. Each answer uses all rows committed so far.

    Attributes:
        directories: The directories of the sweeps.
    """

    directories: tuple[SweepDirectory, ...]
    _ledgers: tuple[Ledger, ...] = field(repr=False, compare=False)

    @classmethod
    def open(cls, *where: Location) -> "SweepData":
        """Opens the sweeps at these places, at least one: see `attnsweep.orchestrator.analysis.open_sweep`."""
        directories = tuple(SweepDirectory.open(each) for each in where)
        for index, each in enumerate(directories):
            if each.sweep in (other.sweep for other in directories[:index]):
                raise UserError(
                    "DIR", given=str(each.place), expected="a sweep that was not named before", fix="leave it out"
                )
            if each.spec.workload != directories[0].spec.workload:
                raise UserError(
                    "DIR",
                    given=f"{each.place} (workload {each.spec.workload})",
                    expected=f"a sweep of {directories[0].spec.workload}, as {directories[0].place} is",
                    fix="open sweeps of one workload together",
                )
        data = cls(directories, tuple(Ledger(each.place) for each in directories))
        data.connect().close()
        return data

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection to the views `trainings`, `curves`, `heads` and `trials` as they are now."""
        return connect([ledger.tables() for ledger in self._ledgers], _TRIALS_APART)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """`connect` for one block. An error caused by a damaged file becomes a `UserError` that names the file."""
        with naming_damage([each.place for each in self.directories]), self.connect() as connection:
            yield connection

    def trainings(self, format: TableFormat = "arrow") -> Any:
        """One row per training: a `pyarrow.Table`, or a data frame of pandas or polars."""
        return self.sql("from trainings", format)

    def curves(self, format: TableFormat = "arrow") -> Any:
        """One row per training, step and metric."""
        return self.sql("from curves", format)

    def heads(self, format: TableFormat = "arrow") -> Any:
        """One row per training, probe step, layer and head; none for a workload without attention heads."""
        return self.sql("from heads", format)

    def trials(self, format: TableFormat = "arrow") -> Any:
        """One row per configuration."""
        return self.sql("from trials", format)

    def sql(self, query: str, format: TableFormat = "arrow") -> Any:
        """The answer to a query over the four views.

        Raises:
            UserError: If DuckDB refuses the query, the query has no result, or the format's library is missing.
        """
        with self.reading() as connection:
            return _as_format(answer(connection, query), format)

    def stuck_rates(self, by: str | Sequence[str] | None = None) -> StuckRates:
        """The stuck rate with its interval, over all trials and in the bins of each parameter.

        Args:
            by: A parameter or several; default those that a sweep varies, or in which the sweeps differ.
        """
        by = [by] if isinstance(by, str) else by
        with self.reading() as connection:
            overall = stuck_rate(connection, *self._specs)
            if len(self.directories) == 1 and (by is None or set(by) <= set(swept_names(self.directories[0].spec))):
                rates = rates_by(connection, self.directories[0].spec)
                chosen = rates if by is None else tuple(each for name in by for each in rates if each.parameter == name)
                return StuckRates(overall, chosen)
            names = self._differing(connection) if by is None else list(by)
            return StuckRates(overall, tuple(self._rates_by(connection, name) for name in names))

    def outcomes(self, by: str | None = None) -> OutcomeRates:
        """The rate of each outcome with its interval.

        Args:
            by: A parameter whose bins are the groups; default one group of all trials.
        """
        with self.reading() as connection:
            return outcome_rates(connection, by or "", self._groups(connection, by), pooling(*self._specs))

    def phase_diagram(self, x: str, y: str) -> PhaseDiagram:
        """The probability to end stuck over two parameters.

        Args:
            x, y: Names of parameters whose values are numbers. Trials where one is null are left out.
        """
        with self.reading() as connection:
            return read_phase_diagram(connection, self._specs, x, y)

    def emergence(self, role: str, by: str | None = None, layer: int | None = None) -> Onset:
        """When a role emerges, that is, comes to stay in some head; failed and diverged trainings are left out.

        Args:
            role: The role's label: `positional`, `syntactic`, `rare_token`, or a workload's own.
            by: A parameter whose bins are the groups, or `layer`; default one group of all trials.
            layer: The number of a layer; default any layer.
        """
        once = trials_count_once(*self._specs)
        with self.reading() as connection:
            found = role_histories(connection, any_layer=layer is None and by != "layer")
            chosen = [each for each in found if each.role == role and layer in (None, each.layer)]
            if not chosen:
                there = sorted({each.role for each in found if layer in (None, each.layer)})
                raise UserError(
                    "role",
                    given=role,
                    expected=f"one of {', '.join(there)}" if there else "a workload with attention heads",
                    fix="see docs/roles.md",
                )
            if by != "layer":
                groups = self._groups(connection, by)
                return Onset(role, by or "", onset_curves(chosen[0].onsets, groups, once_per_trial=once))
            names = layer_names_of(self.directories[0].spec.workload)
            curves: list[OnsetCurve] = []
            for each in chosen:
                group = Group(layer_title(names, each.layer), frozenset(each.trial.tolist()))
                curves += onset_curves(each.onsets, [group], once_per_trial=once)
            return Onset(role, by, tuple(curves))

    def onset(self, outcome: str, by: str | None = None) -> Onset:
        """The step from which trainings had the outcome they ended with; failed trainings are left out.

        Args:
            outcome: The outcome, such as `solved`.
            by: A parameter whose bins are the groups; default one group of all trials.
        """
        if outcome not in OUTCOMES:
            expected = f"one of {', '.join(OUTCOMES)}"
            raise UserError("outcome", given=outcome, expected=expected, fix="see docs/outcomes.md")
        with self.reading() as connection:
            times, groups = outcome_onsets(connection, outcome), self._groups(connection, by)
            once = trials_count_once(*self._specs)
            return Onset(outcome, by or "", onset_curves(times, groups, once_per_trial=once))

    def importance(self) -> Importance:
        """Which parameters decide whether a trial is among the best by the sweep's objective: PED-ANOVA.

        Raises:
            UserError: For several sweeps, whose trials were drawn from different spaces.
        """
        if len(self.directories) > 1:
            raise UserError(
                "importance",
                given=f"{len(self.directories)} sweeps",
                expected="one sweep: importance depends on its search space",
                fix="open it alone",
            )
        with self.reading() as connection:
            return importance(connection, self.directories[0].spec)

    @property
    def _specs(self) -> list[Sweep]:
        return [each.spec for each in self.directories]

    def _rates_by(self, connection: duckdb.DuckDBPyConnection, name: str) -> ParameterRates:
        values = values_of(connection, name)
        dimension, kept = dimension_of(self._specs, name, values)
        if dimension is None:
            return ParameterRates(name, "", Categorical(choices=(None,)), ())
        counted = [(kept[trial], (n, k)) for trial, n, k in stuck_counts(connection) if trial in kept]
        where = "" if len(kept) == len(values) else "where it is set"
        return rates_in_bins(name, dimension, counted, pooling(*self._specs), where)

    def _differing(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        varied = dict.fromkeys(name for each in self.directories for name in swept_names(each.spec))
        for name in parameters_of(connection):
            ((n_values,),) = connection.execute(
                f"select count(distinct {param_column(name)}) + max({param_column(name)} is null)::int from trainings"
            ).fetchall()
            if (n_values or 0) > 1:
                varied.setdefault(name)
        return list(varied)

    def _groups(self, connection: duckdb.DuckDBPyConnection, by: str | None) -> list[Group]:
        if by is None:
            trials = connection.execute("select trial from trials").fetchall()
            return [Group("all", frozenset(trial for (trial,) in trials))]
        return groups_by(self._specs, by, values_of(connection, by))


def _as_format(table: pa.Table, format: TableFormat) -> Any:
    if format not in ("arrow", "pandas", "polars"):
        raise UserError("format", given=format, expected="arrow, pandas or polars", fix="leave it out for arrow")
    try:
        if format == "pandas":
            return table.to_pandas()
        if format == "polars":
            import polars

            return polars.from_arrow(table)
    except ModuleNotFoundError as error:
        raise UserError(
            "format",
            given=format,
            expected=f"{format} to be installed",
            fix=f"pip install {format}, or take format='arrow'",
        ) from error
    return table
