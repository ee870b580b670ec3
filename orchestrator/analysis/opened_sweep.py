"""One sweep, or several of one workload, opened for analysis: tables, SQL, and methods that answer questions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.analysis.interventions import interventions
from attnsweep.orchestrator.analysis.labels import check_known
from attnsweep.orchestrator.analysis.onset_times import (
    OnsetTimes,
    event_times,
    onset_by,
    outcome_onsets,
)
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram, read_phase_diagram
from attnsweep.orchestrator.analysis.rates.bins import cell_bins, equal_bins, fine_bins, names_of, read_groups
from attnsweep.orchestrator.analysis.rates.by_parameter import COLUMNS, counts_by_trial, rates_by, read_ending
from attnsweep.orchestrator.analysis.rates.intervals import pooling, trials_count_once
from attnsweep.orchestrator.analysis.rates.outcomes import outcome_rates
from attnsweep.orchestrator.analysis.role_emergence import read_emergence
from attnsweep.orchestrator.analysis.tables import table_of
from attnsweep.orchestrator.ledger.query import answer
from attnsweep.orchestrator.ledger.reader import Ledger, reading
from attnsweep.orchestrator.ledger.views import Tables, connect, names_with, outcomes_of
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sources import TRIALS_APART, check_numbers
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory, are_parts
from attnsweep.orchestrator.terminal import plain
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.interventions import INTERVENTION


@dataclass(frozen=True, repr=False)
class SweepData:
    """The tables of one sweep or several, and methods that answer questions with Arrow tables, each from all rows that
    are committed when it is called."""

    directories: tuple[SweepDirectory, ...]
    _ledgers: tuple[Ledger, ...] = field(compare=False)

    @classmethod
    def open(cls, *where: PlaceName) -> Self:
        """Opens sweeps of one workload, given by their directories or addresses on S3."""
        directories = tuple(SweepDirectory.open(place) for place in where)
        for index, sweep in enumerate(directories):
            name, workload = name_of(sweep.place), directories[0].spec.workload
            if any(sweep.sweep == other.sweep for other in directories[:index]):
                expected, fix = "different sweeps, each named once", "name this sweep only once"
                raise UserError("DIR", given=name, expected=expected, fix=fix)
            if sweep.spec.workload != workload:
                given, expected = f"{name}, of the workload {sweep.spec.workload}", f"sweeps of the workload {workload}"
                raise UserError("DIR", given=given, expected=expected, fix="open sweeps of one workload together")
        data = cls(directories, tuple(Ledger(sweep.place) for sweep in directories))
        with data.reading():
            if data._trials_apart:
                check_numbers([sweep.place for sweep in directories], map(_last_trial, data._tables()))
        return data

    def __repr__(self) -> str:
        sweeps = ", ".join(f"{name_of(sweep.place)}: {sweep.spec.trials:,} trials" for sweep in self.directories)
        return plain(f"SweepData({self.specs[0].workload}; {sweeps})")

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with the views `trainings`, `curves`, `heads` and `trials`, as of now."""
        return connect(self._tables(), self._trials_apart)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """As `connect`, for a `with` block, in which a `UserError` names a damaged file."""
        with reading(self._ledgers, self._trials_apart) as connection:
            yield connection

    @property
    def _trials_apart(self) -> int:
        return 0 if len(self.directories) == 1 or are_parts(self.directories) else TRIALS_APART

    def _tables(self) -> list[Tables]:
        return [ledger.tables() for ledger in self._ledgers]

    @property
    def specs(self) -> list[Sweep]:
        """One for each sweep; the shards of a sweep have one together."""
        return [sweep.spec for sweep in self.directories[: None if self._trials_apart else 1]]

    def trainings(self) -> pa.Table:
        """One row per training."""
        return self.sql("from trainings")

    def curves(self) -> pa.Table:
        """One row per training, probe step and metric."""
        return self.sql("from curves")

    def heads(self) -> pa.Table:
        """One row per training, probe step, layer and head; no rows for a workload without attention heads."""
        return self.sql("from heads")

    def trials(self) -> pa.Table:
        """One row per trial: its parameters, how many trainings were stuck, solved, failed or pruned, and the quartiles
        of their losses."""
        return self.sql("from trials")

    def sql(self, query: str) -> pa.Table:
        """Runs a SQL query over the views `trainings`, `curves`, `heads` and `trials`, and the table `outcomes`. Raises
        a `UserError` if it is not one query, or DuckDB refuses it."""
        # In a database of its own: after an error inside DuckDB, a shared one would refuse all later queries.
        with reading(self._ledgers, self._trials_apart, connecting=connect) as connection:
            return answer(connection, query)

    def stuck_rates(
        self,
        by: str | Sequence[str] | None = None,
        *,
        outcome: str = "stuck",
        bins: int | None = None,
    ) -> pa.Table:
        """The share of stuck trainings, or of those with one outcome: over all trials in the first row, then in the
        bins of each parameter in `by`, by default those that a sweep varies, or in which the sweeps differ.

        `bins`: equal parts of each range; by default the more, the more trials.
        """
        names = [by] if isinstance(by, str) else by
        with self.reading() as connection:
            ending = read_ending(connection, outcome)
            counts = [(n, k) for _, n, k in counts_by_trial(connection, (), ending)]
            overall = dict.fromkeys(COLUMNS) | {"n_trials": len(counts)} | pooling(*self.specs)(counts).columns()
            rates = rates_by(connection, self.specs, ending, equal_bins(bins, fine_bins), names)
        return pa.concat_tables([table_of(COLUMNS, [overall]), rates])

    def outcomes(self, by: str | Sequence[str] | None = None, *, bins: int | None = None) -> pa.Table:
        """The rate of each outcome, with its interval: over all trials, in each bin of a parameter, or in each cell of
        two. `bins` as for `stuck_rates`."""
        with self.reading() as connection:
            names = names_of(by)
            binning = equal_bins(bins, cell_bins if len(names) > 1 else fine_bins)
            return outcome_rates(connection, self.specs, read_groups(connection, self.specs, names, binning))

    def phase_diagram(self, x: str, y: str, *, outcome: str = "stuck") -> PhaseDiagram:
        """Fits the probability that a training ends stuck, or with one outcome, as a smooth function of two parameters
        whose values are numbers. Trials where one is null are left out."""
        with self.reading() as connection:
            return read_phase_diagram(connection, self.specs, x, y, read_ending(connection, outcome))

    def emergence(self, role: str, by: str | Sequence[str] | None = None, layer: int | None = None) -> pa.Table:
        """By step, the share of trainings in which a role of attention heads has emerged, with the columns of `onset`.
        Failed, diverged and pruned trainings are left out.

        A role, such as `positional`, emerges at the first probe at which some head of the layer has it, if some head
        has it at the next probe too. `by` may name `layer`; `layer=N` takes that layer alone; without either, a head of
        any layer counts.
        """
        with self.reading() as connection:
            return read_emergence(connection, self.specs, role, names_of(by), layer)

    def onset(self, outcome: str, by: str | Sequence[str] | None = None) -> pa.Table:
        """By step, the share of trainings that have an outcome, such as `solved`, and keep it. Failed and pruned ones
        are left out.

        One row per group: the bins of the parameter `by`, or of two; by default all trials. Half of the trainings that
        reach the outcome did after `median_before`, by `median_step`; half of all after `half_before`, by `half_step`,
        and with 95% confidence after `low`, by `high`. `curve` has the share by step, with its interval.
        """
        with self.reading() as connection:
            check_known("outcome", outcome, outcomes_of(connection), "", "see docs/outcomes.md")
            return self._onset(connection, outcome_onsets(connection, outcome), by)

    def event(self, event: str, by: str | Sequence[str] | None = None, *, after: str | None = None) -> pa.Table:
        """By step, the share of trainings in which an event has held, with the columns of `onset`. Failed and pruned
        ones are left out.

        With `after`, another event, steps count from the step at which that first held (the delay), and trainings in
        which it never held are left out. If `event` held before it, the delay is 0.
        """
        with self.reading() as connection:
            for name in (event,) if after is None else (event, after):
                none = "no name: the workload declares no events"
                check_known("event", name, names_with(connection, "event_"), none, "see docs/outcomes.md")
            return self._onset(connection, event_times(connection, event, after), by)

    def interventions(self) -> pa.Table:
        """How often trainings are solved, or reach an event or a role, sooner with an intervention than without it, in
        pairs of equal seed."""
        with self.reading() as connection:
            found = interventions(connection, self.specs[0].workload)
        if not found.num_rows:
            given = "no pair of trainings in which one is solved, reaches an event or has a head with a role"
            fix = "let null be a choice of the parameter `intervention`, with sampler=grid, or train longer"
            raise UserError(INTERVENTION, given=given, expected="pairs of equal seeds, one of them with it", fix=fix)
        return found

    def _onset(
        self, connection: duckdb.DuckDBPyConnection, times: OnsetTimes, by: str | Sequence[str] | None
    ) -> pa.Table:
        groups = read_groups(connection, self.specs, names_of(by))
        return onset_by(times, groups, trials_count_once(*self.specs))


def _last_trial(tables: Tables) -> int:
    """-1 without rows."""
    last = pc.max(tables["trainings"].to_table(columns=["trial"])["trial"]).as_py()
    return -1 if last is None else int(last)
