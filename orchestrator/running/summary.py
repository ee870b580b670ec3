"""What a run prints at its end, as text or JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import duckdb
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from attnsweep.orchestrator.analysis.labels import speed_label
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    MAX_PARAMETERS,
    STUCK,
    Ending,
    by_title,
    rate_of,
    rates_by,
    read_question,
)
from attnsweep.orchestrator.analysis.rates.intervals import Rate, rate_label
from attnsweep.orchestrator.analysis.rates.outcomes import commonest_failure
from attnsweep.orchestrator.analysis.results import SweepResults, read_results, role_cells
from attnsweep.orchestrator.analysis.tables import Row, to_json
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.run_records import Replays
from attnsweep.orchestrator.storage.sweep_directory import REPORT_FILE, SweepDirectory
from attnsweep.search_spaces.sweep import Sweep


def how_to_continue(directory: SweepDirectory) -> str:
    command = "resume" if directory.claim is None else "verify"
    return f"interrupted; continue with: attnsweep {command} {as_argument(directory.place)}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary:
    """A run's results.

    Attributes:
        refused: Why the workload refused a trial's values, by the trial's number.
        finished: Whether the sweep's budget is spent.
        seconds: Wall time of this run, or of its command if that has ended.
        failure: The commonest last line of the errors of failed trainings, with its count; `None` if none failed.
        asked: The rate that is an objective, over all trials and in the rows of `rates_by`; `None` for the stuck rate.
        mlflow: How to open the sweep in MLflow, or why that lacks some of it; empty if the run did not log to it.
    """

    directory: SweepDirectory
    results: SweepResults
    refused: Mapping[int, str]
    finished: bool
    n_trials: int
    seconds: float
    n_new: int
    replays: Replays | None
    asked: tuple[Ending, Rate, list[Row]] | None = None
    failure: str | None = None
    mlflow: str = ""

    def __repr__(self) -> str:
        state = "finished" if self.finished else "not finished"
        name = name_of(self.directory.place)
        return f"Summary({name}: {state}, {self.n_trials:,} trials, {self.n_trainings:,} trainings)"

    @property
    def fault(self) -> str | None:
        """What the self-check found wrong; `None` if nothing, or if it did not run."""
        return None if self.replays is None else self.replays.fault

    @property
    def n_trainings(self) -> int:
        return self.results.n_trainings

    @property
    def has_trained(self) -> bool:
        return self.n_new > 0

    @property
    def trainings_per_second(self) -> float:
        return self.n_new / max(self.seconds, 1e-9)

    @property
    def pace(self) -> str:
        return f"{self.seconds:.1f} s, {speed_label(self.trainings_per_second)} trainings per second"

    @property
    def n_failed(self) -> int:
        return self.results.outcomes.get("failed", 0)

    def to_json(self) -> str:
        """One line."""
        results = self.results
        stuck, preferred = results.stuck_rate, results.preferred
        content = {
            "directory": name_of(self.directory.place),
            "sweep": self.directory.sweep,
            "finished": self.finished,
            "fault": self.fault,
            "engine": self.directory.engine,
            "engine_reason": self.directory.provenance.get("engine_reason", ""),
            "trials": self.n_trials,
            "refused_trials": len(self.refused),
            "trainings": self.n_trainings,
            "outcomes": results.outcomes,
            "failure": self.failure,
            "stuck_rate": stuck.share,
            "stuck_rate_low": stuck.low,
            "stuck_rate_high": stuck.high,
            "stuck_or_slow": results.stuck_or_slow,
            "best_trial": preferred.best["trial"] if preferred.best else None,
            "pareto_front": preferred.front,
            "feasible_trials": preferred.n_feasible,
            "replays": self.replays.as_json() if self.replays else None,
            "roles": results.roles,
            "seconds": round(self.seconds, 3),
            "trainings_per_second": round(self.trainings_per_second, 3),
        }
        return to_json(content)

    def print(self, console: Console, *, report: bool = False) -> None:
        """Prints the summary with the next commands to type. `report`: one is written afterwards."""
        place, results = as_argument(self.directory.place), self.results
        say = partial(console.print, soft_wrap=True, markup=False)
        say_plainly = partial(say, highlight=False)
        title = f"  {self.n_trainings} trainings of {self.n_trials} trials"
        console.print(Text.assemble("\n", (self.directory.sweep, "bold"), title))
        if not self.n_trainings:
            say_plainly("no trial could be trained" if self.finished else how_to_continue(self.directory))
            return
        shares = ((name, str(n), f"{n / self.n_trainings:.1%}") for name, n in results.outcomes.items())
        console.print(_table(("outcome", "trainings", "share"), shares))
        ending, rows = STUCK, results.stuck_rate_by
        if self.asked is not None:
            ending, rate, rows = self.asked
            say(f"{ending.share_label} {rate_label(rate)}")
        for sentence in results.sentences():
            say(sentence)
        names = ("trials", ending.label, f"{ending.share_label} (95% interval)")
        titles = by_title(rows)
        matter = sorted(titles, key=lambda title: _range_of_rates(titles[title]), reverse=True)[:MAX_PARAMETERS]
        for title in (title for title in titles if title in matter):
            bins = titles[title]
            cells = ((row["bin"], str(row["n_trials"]), str(row["k"]), rate_label(Rate.of(row))) for row in bins)
            console.print(_table((title, *names), cells))
        if results.roles is not None:
            columns = ("role", "layer", "trainings (95% interval)", "heads", "emerges at step")
            console.print(_table(columns, map(role_cells, results.roles)))
        if self.replays is not None and self.replays.deviations and not self.fault:
            say(str(self.replays))
        for trial, reason in islice(self.refused.items(), 1):
            say(f"{len(self.refused)} trials refused, such as #{trial}: {reason}")
        say_plainly(f"engine   {self.directory.engine_in_words}")
        if report and self.finished:
            say_plainly(f"report   {place}/{REPORT_FILE}")
        say_plainly(f"ledger   {place}/trainings/*.parquet")
        if self.mlflow:
            say_plainly(f"MLflow   {self.mlflow}")
        if self.n_failed and self.finished:
            say_plainly(f"failed   {self.failure}")
            query = "select trial, replicate, error from trainings where outcome = 'failed'"
        else:
            query = "select outcome, count(*) from trainings group by 1"
        say_plainly(f'next     attnsweep query {place} "{query}"' if self.finished else how_to_continue(self.directory))
        if self.replays is not None and self.fault is not None:
            say_plainly(f"\nfault    {self.fault}", style="bold red")
            say_plainly("The rows are kept; do not rely on them before the cause is known: attnsweep docs trust")
            say_plainly(f"compare  attnsweep replay {place} {next(iter(self.replays.disagreeing))}")


def summarize(
    directory: SweepDirectory,
    *,
    refused: Mapping[int, str],
    finished: bool,
    seconds: float,
    n_before: int,
    replays: Replays | None,
) -> Summary:

    def read(connection: duckdb.DuckDBPyConnection) -> Summary:
        ((n_trials,),) = connection.execute("select count(distinct trial) from trainings").fetchall()
        results = read_results(connection, directory.spec)
        return Summary(
            directory=directory,
            results=results,
            refused=refused,
            finished=finished,
            n_trials=n_trials,
            seconds=seconds,
            n_new=results.n_trainings - n_before,
            replays=replays,
            asked=_asked(connection, directory.spec),
            failure=commonest_failure(connection),
        )

    return Ledger(directory.place).ask(read)


def _range_of_rates(rows: Sequence[Row]) -> float:
    shares = [row["share"] for row in rows if row["share"] is not None]
    return max(shares, default=0.0) - min(shares, default=0.0)


def _asked(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> tuple[Ending, Rate, list[Row]] | None:
    ending = read_question(connection, spec, None).ending
    if ending == STUCK:
        return None
    overall = rate_of(connection, ending, spec)
    return ending, overall, rates_by(connection, [spec], ending).to_pylist()


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(*(Column(Text(name)) for name in names), box=None, header_style="bold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
