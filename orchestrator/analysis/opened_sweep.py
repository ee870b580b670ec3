"""One sweep, or several of one workload, opened for analysis: tables, SQL, and methods that answer questions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import duckdb
import pyarrow.compute as pc

from attnsweep.orchestrator.analysis.answer import MOST_CHARACTERS, TableFormat, as_format, html_table, html_text
from attnsweep.orchestrator.analysis.interventions import InterventionRatios, read_interventions
from attnsweep.orchestrator.analysis.labels import check_known, clipped
from attnsweep.orchestrator.analysis.onset import Onset, onset_by
from attnsweep.orchestrator.analysis.onset_times import OnsetTimes, event_names, event_times, outcome_onsets
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram, read_phase_diagram
from attnsweep.orchestrator.analysis.rates.answers import CellRate, OutcomeRates, StuckRates, cell_rates, outcome_rates
from attnsweep.orchestrator.analysis.rates.bins import (
    Binning,
    cell_bins,
    dimension_of,
    equal_bins,
    fine_bins,
    names_of,
    parameters_of,
    read_crossing,
    values_of,
)
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    Ending,
    ParameterRates,
    counts_by_trial,
    rates_by,
    rates_in_bins,
    read_ending,
    swept_names,
)
from attnsweep.orchestrator.analysis.rates.intervals import pooling, trials_count_once
from attnsweep.orchestrator.analysis.role_emergence import read_emergence
from attnsweep.orchestrator.ledger.query import answer
from attnsweep.orchestrator.ledger.reader import Ledger, reading
from attnsweep.orchestrator.ledger.views import Tables, connect, outcomes_of, param_column
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sources import TRIALS_APART, check_numbers
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory, are_parts
from attnsweep.orchestrator.terminal import plain
from attnsweep.search_spaces.dimensions import Categorical
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.interventions import INTERVENTION


@dataclass(frozen=True, repr=False)
class SweepData:
    """The tables of one sweep or of several (`directories`), and methods that answer questions from them. Each answer
    uses all rows that exist when it is computed."""

    directories: tuple[SweepDirectory, ...]
    _ledgers: tuple[Ledger, ...] = field(compare=False)

    @classmethod
    def open(cls, *where: PlaceName) -> Self:
        """Opens one or more sweeps of the same workload, given by their directories or addresses on S3."""
        directories = tuple(SweepDirectory.open(place) for place in where)
        for index, sweep in enumerate(directories):
            if any(sweep.sweep == other.sweep for other in directories[:index]):
                fix = "name this sweep only once"
                raise UserError("DIR", given=str(sweep.place), expected="different sweeps, each named once", fix=fix)
            if sweep.spec.workload != directories[0].spec.workload:
                given = f"{sweep.place}, of the workload {sweep.spec.workload}"
                expected = f"sweeps of the workload {directories[0].spec.workload}, like {directories[0].place}"
                raise UserError("DIR", given=given, expected=expected, fix="open sweeps of one workload together")
        data = cls(directories, tuple(Ledger(sweep.place) for sweep in directories))
        with data.reading():
            if data._trials_apart:
                check_numbers([sweep.place for sweep in directories], map(_last_trial, data._tables()))
        return data

    def __repr__(self) -> str:
        sweeps = ", ".join(f"{sweep.place}: {sweep.spec.trials:,} trials" for sweep in self.directories)
        return plain(clipped(f"SweepData({self._specs[0].workload}; {sweeps})", MOST_CHARACTERS))

    def _repr_html_(self) -> str:
        """The number of trainings of each sweep, by outcome."""
        counts = self.sql(
            "select sweep, outcome, count(distinct trial) as trials, count(*) as trainings "
            "from trainings group by all order by min(trial), trainings desc, outcome"
        )
        return f"<p>{html_text(repr(self), MOST_CHARACTERS)}</p>{html_table(counts)}"

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Opens a DuckDB connection with the views `trainings`, `curves`, `heads` and `trials`, as of now."""
        return connect(self._tables(), self._trials_apart)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Opens a connection, as `connect` does, and closes it at the end of the `with` block. A damaged file causes a
        `UserError` that names the file."""
        with reading(self._ledgers, self._trials_apart) as connection:
            yield connection

    @property
    def _trials_apart(self) -> int:
        return 0 if len(self.directories) == 1 or are_parts(self.directories) else TRIALS_APART

    def _tables(self) -> list[Tables]:
        return [ledger.tables() for ledger in self._ledgers]

    def trainings(self, format: TableFormat = "arrow") -> Any:
        """Returns one row per training: a `pyarrow.Table`, or a data frame of pandas or polars."""
        return self.sql("from trainings", format)

    def curves(self, format: TableFormat = "arrow") -> Any:
        """Returns one row per training, step and metric, with the value that was measured."""
        return self.sql("from curves", format)

    def heads(self, format: TableFormat = "arrow") -> Any:
        """Returns one row per training, probe step, layer and head; no rows for a workload without attention heads."""
        return self.sql("from heads", format)

    def trials(self, format: TableFormat = "arrow") -> Any:
        """Returns one row per trial: its parameters, how many of its trainings were stuck, solved, failed or pruned,
        and the quartiles of their losses."""
        return self.sql("from trials", format)

    def sql(self, query: str, format: TableFormat = "arrow") -> Any:
        """Runs a SQL query over the views `trainings`, `curves`, `heads` and `trials`. Raises a `UserError` if DuckDB
        refuses the query or it has no result, or if pandas or polars is asked for and not installed."""
        # The query runs in a DuckDB database that is made for this query alone. In a shared database, an error inside
        # DuckDB would make all later queries fail.
        with reading(self._ledgers, self._trials_apart, connecting=connect) as connection:
            return as_format(answer(connection, query), format)

    def stuck_rates(
        self,
        by: str | Sequence[str] | None = None,
        *,
        outcome: str = "stuck",
        detail: str | None = None,
        bins: int | None = None,
    ) -> StuckRates:
        """Computes the share of stuck trainings, or of those with one outcome, over all trials and in the bins of each
        parameter. Raises a `UserError` for an unknown parameter, outcome or detail of an outcome.

        Args:
            by: A parameter or several; default those that a sweep varies, or in which the sweeps differ. With exactly
                two, the answer also has the rate in each cell of the two.
            outcome: An outcome such as `degenerate_zero`; `stuck` for all those that count as stuck.
            detail: An `outcome_detail` such as `mean`; default any.
            bins: Equal parts of each range; default the more, the more trials.
        """
        by = [by] if isinstance(by, str) else by
        with self.reading() as connection:
            ending = read_ending(connection, outcome, detail)
            overall = pooling(*self._specs)([(n, k) for _, n, k in counts_by_trial(connection, (), ending)])
            cells: tuple[CellRate, ...] = ()
            if by is not None and len(by) == 2:
                crossing = read_crossing(connection, self._specs, names_of(by), equal_bins(bins, cell_bins))
                cells = cell_rates(connection, crossing, ending, self._specs)
            return StuckRates(
                overall, self._by_parameter(connection, by, ending, equal_bins(bins, fine_bins)), ending, cells
            )

    def outcomes(self, by: str | Sequence[str] | None = None, *, bins: int | None = None) -> OutcomeRates:
        """Computes the rate of each outcome, with its interval: in each bin of a parameter, in each cell of two
        parameters (one bin of each), or by default over all trials. `bins` as for `stuck_rates`. Raises a `UserError`
        for an unknown parameter, or more than two."""
        with self.reading() as connection:
            names = names_of(by)
            binning = equal_bins(bins, cell_bins if len(names) > 1 else fine_bins)
            crossing = read_crossing(connection, self._specs, names, binning)
            return outcome_rates(connection, crossing, pooling(*self._specs))

    def phase_diagram(self, x: str, y: str, *, outcome: str = "stuck", detail: str | None = None) -> PhaseDiagram:
        """Fits the probability that a training ends stuck, or with one outcome, as a smooth function of two parameters.
        Raises a `UserError` for an unknown parameter, outcome or detail, or a parameter whose values are not numbers.

        Args:
            x, y: Names of parameters whose values are numbers. Trials where one is null are left out.
            outcome, detail: As for `stuck_rates`.
        """
        with self.reading() as connection:
            return read_phase_diagram(connection, self._specs, x, y, read_ending(connection, outcome, detail))

    def emergence(self, role: str, by: str | Sequence[str] | None = None, layer: int | None = None) -> Onset:
        """Computes, by step, the share of trainings in which a role of attention heads has emerged. Failed and diverged
        trainings are left out. Raises a `UserError` for an unknown role or parameter, or more than two parameters.

        A role emerges at the first probe at which some head of the layer has it, if some head has it at the next probe
        too.

        Args:
            role: The role's label: `positional`, `syntactic`, `rare_token`, or a workload's own.
            by: A parameter whose bins are the groups, or two; `layer` may be one of them. Default one group.
            layer: The number of a layer; default any layer.
        """
        with self.reading() as connection:
            return read_emergence(connection, self._specs, role, names_of(by), layer)

    def onset(self, outcome: str, by: str | Sequence[str] | None = None) -> Onset:
        """Computes, by step, the share of trainings that have an outcome, such as `solved`, and keep it. Failed
        trainings are left out.

        The groups are the bins of the parameter `by`, or of two; by default one group of all trials. Raises a
        `UserError` for an unknown outcome or parameter, or more than two parameters.
        """
        with self.reading() as connection:
            check_known("outcome", outcome, outcomes_of(connection), "", "see docs/outcomes.md")
            return self._onset(connection, outcome, outcome_onsets(connection, outcome), by)

    def event(self, event: str, by: str | Sequence[str] | None = None, *, after: str | None = None) -> Onset:
        """Computes the share of trainings in which an event has held, by step, for all trials together or for the bins
        of one or two parameters. Failed and pruned trainings are left out. Raises a `UserError` if the event or a
        parameter is unknown, or if there are more than two parameters.

        Args:
            by: A parameter whose bins are the groups, or two; default one group of all trials.
            after: Another event. If it is given, steps count from the step at which this other event first held (the
                delay), and trainings in which it never held are left out. If `event` held before it, or at the same
                probe, the delay is 0.
        """
        with self.reading() as connection:
            for name in (event,) if after is None else (event, after):
                none = "no name: the workload declares no events"
                check_known("event", name, event_names(connection), none, "see docs/outcomes.md")
            what = event if after is None else f"{event} after {after}"
            return self._onset(connection, what, event_times(connection, event, after), by)

    def interventions(self) -> InterventionRatios:
        """Estimates how much sooner trainings reach a goal with an intervention than without it, from pairs of
        trainings with the same seed. Raises a `UserError` if no training of such a pair reaches a goal.

        A goal is an outcome, an event, or a role of an attention head: see docs/interventions.md.
        """
        with self.reading() as connection:
            ratios = read_interventions(connection, self._specs[0].workload)
        if not ratios.ratios:
            given = "no pair of trainings in which one is solved, reaches an event or has a head with a role"
            fix = "let null be a choice of the parameter `intervention`, with sampler=grid, or train longer"
            raise UserError(INTERVENTION, given=given, expected="pairs of equal seeds, one of them with it", fix=fix)
        return ratios

    def _onset(
        self, connection: duckdb.DuckDBPyConnection, what: str, times: OnsetTimes, by: str | Sequence[str] | None
    ) -> Onset:
        crossing = read_crossing(connection, self._specs, names_of(by))
        return onset_by(what, times, crossing, once_per_trial=trials_count_once(*self._specs))

    @property
    def _specs(self) -> list[Sweep]:
        return [sweep.spec for sweep in self.directories]

    def _by_parameter(
        self, connection: duckdb.DuckDBPyConnection, by: Sequence[str] | None, ending: Ending, binning: Binning
    ) -> tuple[ParameterRates, ...]:
        spec = self._specs[0]
        if len(self._specs) > 1 or not set(by or ()) <= set(swept_names(spec)):
            names = self.differing(connection) if by is None else by
            return tuple(self._rates_by(connection, name, ending, binning) for name in names)
        rates = rates_by(connection, spec, ending, binning)
        return rates if by is None else tuple(rate for name in by for rate in rates if rate.parameter == name)

    def _rates_by(
        self, connection: duckdb.DuckDBPyConnection, name: str, ending: Ending, binning: Binning
    ) -> ParameterRates:
        values = values_of(connection, name)
        dimension, kept = dimension_of(self._specs, name, values)
        if dimension is None:
            return ParameterRates(name, "", Categorical(choices=(None,)), ())
        counted = [(kept[trial], (n, k)) for trial, n, k in counts_by_trial(connection, (), ending) if trial in kept]
        where = "" if len(kept) == len(values) else "where it is set"
        return rates_in_bins(name, dimension, counted, pooling(*self._specs), binning, where)

    def differing(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        """Lists the parameters that a sweep varies, and those in which the opened sweeps differ from each other."""
        varied = dict.fromkeys(name for sweep in self.directories for name in swept_names(sweep.spec))
        for name in parameters_of(connection):
            ((n_values,),) = connection.execute(
                f"select count(distinct {param_column(name)}) + max({param_column(name)} is null)::int from trainings"
            ).fetchall()
            if (n_values or 0) > 1:
                varied.setdefault(name)
        return list(varied)


def _last_trial(tables: Tables) -> int:
    """-1 without rows."""
    last = pc.max(tables["trainings"].to_table(columns=["trial"])["trial"]).as_py()
    return -1 if last is None else int(last)
