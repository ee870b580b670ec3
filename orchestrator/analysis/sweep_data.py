"""One sweep, or several of one workload, opened for questions."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import duckdb
import pyarrow as pa

from orchestrator.analysis.grouping import Group, dimension_of, groups_by, parameters_of, values_of
from orchestrator.analysis.importance import Importance, importance
from orchestrator.analysis.onset import Histories, Onset, curves_by_group, outcome_histories
from orchestrator.analysis.phase_diagram import PhaseDiagram, read_phase_diagram
from orchestrator.analysis.rate_answers import OutcomeRates, StuckRates
from orchestrator.analysis.rates import (
    ParameterRates,
    binned_rates,
    pooling,
    rates_by,
    stuck_rate,
    swept_names,
    trials_count_once,
)
from orchestrator.analysis.role_findings import layer_names_of, layer_title
from orchestrator.analysis.role_history import RoleHistory, role_histories
from orchestrator.ledger.reader import Ledger
from orchestrator.ledger.sql_text import param_column
from orchestrator.ledger.verification import naming_damage
from orchestrator.ledger.views import connect
from orchestrator.places.location import Location
from orchestrator.query import answer
from orchestrator.sweep_directory import SweepDirectory
from search_spaces.dimensions import Categorical
from search_spaces.sweep import Sweep
from workloads.errors import UserError

TableFormat: TypeAlias = Literal["arrow", "pandas", "polars"]

_TRIALS_APART = 1_000_000
"""From a sweep's trial 0 to the next one's, so that a trial keeps its number while the sweeps before it go on."""


@dataclass(frozen=True)
class SweepData:
    """The tables of a sweep, and what they say. Each answer sees every row committed by then.

    Attributes:
        directories: One for each sweep.
    """

    directories: tuple[SweepDirectory, ...]
    _ledgers: tuple[Ledger, ...] = field(repr=False, compare=False)

    @classmethod
    def open(cls, *paths: Location) -> "SweepData":
        """Opens the sweeps in these directories, at least one; see `orchestrator.analysis.open_sweep`."""
        directories = tuple(SweepDirectory.open(path) for path in paths)
        for index, each in enumerate(directories):
            if each.sweep in (other.sweep for other in directories[:index]):
                raise UserError(
                    "DIR", given=str(each.path), expected="a sweep that was not named before", mend="leave it out"
                )
            if each.spec.workload != directories[0].spec.workload:
                raise UserError(
                    "DIR",
                    given=f"{each.path} (workload {each.spec.workload})",
                    expected=f"a sweep of {directories[0].spec.workload}, as {directories[0].path} is",
                    mend="open sweeps of one workload together",
                )
        data = cls(directories, tuple(Ledger(each.path) for each in directories))
        data.connect().close()
        return data

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with the views `trainings`, `curves`, `heads` and `trials`, as of now."""
        return connect([ledger.tables() for ledger in self._ledgers], _TRIALS_APART)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """`connect` for one block; an error that damage makes in it is a UserError that names the file."""
        with naming_damage([each.path for each in self.directories]), self.connect() as connection:
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
            UserError: If DuckDB refuses it, it answers nothing, or the format's library is missing.
        """
        with self.reading() as connection:
            return _as_format(answer(connection, query), format)

    def stuck_rates(self, by: Sequence[str] | None = None) -> StuckRates:
        """The stuck rate with its interval, over all trials and in the bins of each parameter by itself.

        Args:
            by: Parameters; default those that a sweep varies, or in which the sweeps differ.
        """
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
            by: A parameter whose bins are looked at one by one.
        """
        with self.reading() as connection:
            groups = self._groups(connection, by)
            rows = connection.execute("select trial, outcome, count(*) from trainings group by all").fetchall()
        totals: dict[str, int] = {}
        for _, outcome, count in rows:
            totals[outcome] = totals.get(outcome, 0) + count
        n_failed = totals.pop("failed", 0)
        names = sorted(totals, key=lambda name: (-totals[name], name))
        of_trial: dict[int, dict[str, int]] = {}
        for trial, outcome, count in rows:
            if outcome != "failed":
                of_trial.setdefault(trial, {})[outcome] = count
        rates, pool = [], pooling(*self._specs)
        for group in groups:
            inside = [of_trial[trial] for trial in sorted(group.trials & of_trial.keys())]
            rates.append(tuple(pool([(sum(each.values()), each.get(name, 0)) for each in inside]) for name in names))
        return OutcomeRates(by or "", tuple(group.label for group in groups), tuple(names), tuple(rates), n_failed)

    def phase_diagram(self, x: str, y: str) -> PhaseDiagram:
        """The probability to end stuck over two parameters that are numbers; trials where one is null are left out.

        Args:
            x, y: Their names.
        """
        with self.reading() as connection:
            return read_phase_diagram(connection, self._specs, x, y)

    def emergence(self, role: str, by: str | None = None, layer: int | None = None) -> Onset:
        """When a role comes to stay in some head; failed and diverged trainings are left out.

        Args:
            role: As labelled: `positional`, `syntactic`, `rare_token`, or a workload's own.
            by: A parameter whose bins are looked at one by one, or `layer`.
            layer: Its number; default any.
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
                    expected=f"one of {', '.join(there)}" if there else "attention heads, of which there are none here",
                    mend="see docs/roles.md",
                )
            if by == "layer":
                every = frozenset(trial for each in chosen for trial in each.trial.tolist())
                names = layer_names_of(self.directories[0].spec.workload)
                parts = [(Group(layer_title(names, each.layer), every), each) for each in chosen]
                curves = [
                    curve
                    for group, each in parts
                    for curve in curves_by_group(_histories(each), [group], once_per_trial=once)
                ]
                return Onset(role, by, tuple(curves))
            groups = self._groups(connection, by)
            return Onset(role, by or "", curves_by_group(_histories(chosen[0]), groups, once_per_trial=once))

    def onset(self, outcome: str, by: str | None = None) -> Onset:
        """When the outcome with which trainings ended began to hold; failed ones are left out.

        Args:
            outcome: Such as `solved`.
            by: A parameter whose bins are looked at one by one.
        """
        from workloads.engine.contract import OUTCOMES

        if outcome not in OUTCOMES:
            raise UserError(
                "outcome", given=outcome, expected=f"one of {', '.join(OUTCOMES)}", mend="see docs/outcomes.md"
            )
        with self.reading() as connection:
            histories = outcome_histories(connection, outcome)
            once, groups = trials_count_once(*self._specs), self._groups(connection, by)
            return Onset(outcome, by or "", curves_by_group(histories, groups, once_per_trial=once))

    def importance(self) -> Importance:
        """Which parameters decide whether a trial is among the best by the sweep's objective: PED-ANOVA.

        Raises:
            UserError: For several sweeps, whose trials were drawn from different spaces.
        """
        if len(self.directories) > 1:
            raise UserError(
                "importance",
                given=f"{len(self.directories)} sweeps",
                expected="one: importance is relative to the space that it drew from",
                mend="open it alone",
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
        counts = connection.execute(
            "select trial, n_trainings - n_failed, n_stuck from trials order by trial"
        ).fetchall()
        inside = [(trial, (n, k)) for trial, n, k in counts if trial in kept]
        # One parameter is asked for: the other ones of the space do not matter.
        spec = self._specs[0].but(space={name: dimension})
        (rates,) = binned_rates(
            spec, [[kept[trial]] for trial, _ in inside], [count for _, count in inside], pooling(*self._specs)
        )
        return rates if len(kept) == len(values) else dataclasses.replace(rates, where="where it is set")

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


def _histories(history: RoleHistory) -> Histories:
    return Histories(history.trial, history.step, history.emerged)


def _as_format(table: pa.Table, format: TableFormat) -> Any:
    if format not in ("arrow", "pandas", "polars"):
        raise UserError("format", given=format, expected="arrow, pandas or polars", mend="leave it out for arrow")
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
            mend=f"pip install {format}, or take format='arrow'",
        ) from error
    return table
