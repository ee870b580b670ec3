"""What a run prints at its end, as text or JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

import duckdb
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from attnsweep.orchestrator.analysis.labels import speed_label, value_label
from attnsweep.orchestrator.analysis.rates.answers import StuckRates, commonest_failure
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    MOST_PARAMETERS,
    STUCK,
    Ending,
    ParameterRates,
    counts_by_trial,
    rates_by,
    read_question,
)
from attnsweep.orchestrator.analysis.rates.intervals import pooling, rate_label
from attnsweep.orchestrator.analysis.results import SweepResults, read_results
from attnsweep.orchestrator.analysis.role_results import RoleResults, step_label
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.run_records import LIKELY_CAUSES, Replays
from attnsweep.orchestrator.storage.sweep_directory import REPORT_FILE, SweepDirectory
from attnsweep.search_spaces.sweep import Sweep

_COUNTS = """
select count(distinct trial), sum(probe_seconds) / nullif(sum(train_seconds), 0) from trainings
"""


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
        probe_share: The share of the training time that probes took; `None` before the first training has ended.
        asked: The rates that the objective is about, if these are not stuck rates.
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
    probe_share: float | None = None
    asked: StuckRates | None = None
    failure: str | None = None
    mlflow: str = ""

    def __repr__(self) -> str:
        counts = ", ".join(f"{outcome} {count:,}" for outcome, count in self.results.outcomes.items())
        state = "finished" if self.finished else "not finished"
        return f"Summary({self.directory.place}: {state}, {self.n_trials:,} trials, {counts or 'no trainings'})"

    @property
    def fault(self) -> str | None:
        """What the self-check found wrong; `None` if nothing, or if no training was repeated."""
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
    def has_report(self) -> bool:
        """Whether the directory holds a report, up to date or not."""
        return self.directory.place.has_text(REPORT_FILE)

    @property
    def n_failed(self) -> int:
        return self.results.outcomes.get("failed", 0)

    def to_json(self) -> str:
        """Returns the summary as one line of JSON, for scripts."""
        results = self.results
        stuck, best, front = results.stuck, results.best, results.front
        content = {
            "directory": str(self.directory.place),
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
            "stuck_or_slow": results.stuck_or_slow.as_json() if results.stuck_or_slow else None,
            "best_trial": best.trial if best else None,
            "pareto_front": None if front is None else [trial.as_json() for trial in front],
            "feasible_trials": results.preferred.n_feasible,
            "replays": self.replays.as_json() if self.replays else None,
            "roles": results.roles.as_json() if results.roles else None,
            "probe_share": self.probe_share,
            "seconds": round(self.seconds, 3),
            "trainings_per_second": round(self.trainings_per_second, 3),
        }
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console, *, report: bool = False) -> None:
        """Prints the summary with the next commands to type. `report`: one is written afterwards."""
        place, results = as_argument(self.directory.place), self.results
        say = partial(console.print, soft_wrap=True, markup=False)
        say_plainly = partial(say, highlight=False)
        title = f"  {self.n_trainings} trainings of {self.n_trials} trials"
        console.print(Text.assemble("\n", (self.directory.sweep, "bold"), title))
        if not self.n_trainings:
            say_plainly(how_to_continue(self.directory) if not self.finished else "no trial could be trained")
            return
        console.print(_outcome_table(results.outcomes))
        say(f"stuck rate {rate_label(results.stuck)}, 95% interval over trials")
        if self.asked is not None:
            say(f"{self.asked.ending.share_label} {rate_label(self.asked.overall)}")
        if results.pruned_note is not None:
            say(results.pruned_note)
        if results.negative_note is not None:
            say(results.negative_note)
        if results.stuck_or_slow is not None:
            say(results.stuck_or_slow.sentence())
        shown, ending = (self.asked, self.asked.ending) if self.asked else (results, STUCK)
        matter = sorted(shown.by_parameter, key=_range_of_rates, reverse=True)[:MOST_PARAMETERS]
        for rates in shown.by_parameter:
            if rates in matter:
                console.print(_rate_table(rates, ending))
        if results.roles is not None:
            console.print(_role_table(results.roles))
        for sentence in results.preferred.sentences():
            say(sentence)
        objectives = self.directory.spec.objectives
        if (best := results.best) is not None:
            values = "  ".join(f"{name}={value_label(value)}" for name, value in best.parameters.items())
            say(f"best trial #{best.trial}: {values}")
            say(f"           {best.objective} {best.value:.4g}, to {objectives[0].direction}")
        if results.front:
            say(f"Pareto front: {', '.join(f'#{trial.trial}' for trial in results.front)}; --json has their values")
        if self.replays is not None and self.replays.deviations and not self.fault:
            say(str(self.replays))
        for trial, reason in islice(self.refused.items(), 1):
            say(f"{len(self.refused)} trials refused, such as #{trial}: {reason}")
        say_plainly(f"engine   {self.directory.engine_in_words}")
        if self.probe_share is not None:
            rarer = "; rarer probes or a smaller eval_batch_size save time"
            say_plainly(f"probes   {self.probe_share:.0%} of the training time{rarer * (self.probe_share > 0.1)}")
        if report and self.finished:
            say_plainly(f"report   {place}/{REPORT_FILE}")
        for line in self.next_steps(place):
            say_plainly(line)
        if self.replays is not None and self.fault is not None:
            say_plainly(f"\nfault    {self.fault}", style="bold red")
            causes = () if self.replays.raised else LIKELY_CAUSES
            likely = " Likely causes:" if causes else ""
            say_plainly(f"The rows are kept; do not rely on them before the cause is known.{likely}")
            for cause in causes:
                say_plainly(f"  - {cause}")
            say_plainly(f"compare  attnsweep replay {place} {next(iter(self.replays.disagreeing))}")

    def next_steps(self, place: str) -> list[str]:
        lines = [f"ledger   {place}/trainings/*.parquet"] + [f"MLflow   {self.mlflow}"] * bool(self.mlflow)
        if not self.finished:
            return [*lines, how_to_continue(self.directory)]
        query = "select outcome, count(*) from trainings group by 1"
        lines.append(f'next     attnsweep query {place} "{query}"')
        if self.n_failed:
            errors = "select trial, replicate, error from trainings where outcome = 'failed'"
            lines.append(f"failed   {self.failure}")
            lines.append(f'         attnsweep query {place} "{errors}"')
        return lines


def summarize(
    directory: SweepDirectory,
    *,
    refused: Mapping[int, str],
    finished: bool,
    seconds: float,
    n_before: int,
    replays: Replays | None,
) -> Summary:
    """Makes a summary from the ledger, but for its fields about MLflow."""

    def read(connection: duckdb.DuckDBPyConnection) -> Summary:
        ((n_trials, probe_share),) = connection.execute(_COUNTS).fetchall()
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
            probe_share=probe_share,
            asked=_asked(connection, directory.spec),
            failure=commonest_failure(connection),
        )

    return Ledger(directory.place).ask(read)


def _range_of_rates(rates: ParameterRates) -> float:
    shares = [each.rate.share for each in rates.bins if each.rate.share is not None]
    return max(shares, default=0.0) - min(shares, default=0.0)


def _outcome_table(outcomes: Mapping[str, int]) -> Table:
    table = Table("outcome", "trainings", "share", box=None, header_style="bold")
    total = sum(outcomes.values())
    for outcome, count in outcomes.items():
        table.add_row(Text(outcome), str(count), f"{count / total:.1%}")
    return table


def _asked(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> StuckRates | None:
    ending = read_question(connection, spec, None).ending
    if ending == STUCK:
        return None
    overall = pooling(spec)([(n, k) for _, n, k in counts_by_trial(connection, (), ending)])
    return StuckRates(overall, rates_by(connection, spec, ending), ending)


def _rate_table(rates: ParameterRates, ending: Ending) -> Table:
    names = ("trials", ending.label, f"{ending.share_label} (95% interval)")
    table = Table(Column(Text(rates.title)), *names, box=None, header_style="bold")
    for rate_bin in rates.bins:
        table.add_row(
            Text(rate_bin.label), str(rate_bin.n_trials), str(rate_bin.rate.k), Text(rate_label(rate_bin.rate))
        )
    return table


def _role_table(roles: RoleResults) -> Table:
    columns = ("role", "layer", "trainings (95% interval)", "heads", "emerges at step")
    table = Table(*columns, box=None, header_style="bold")
    for rate, when in roles.rows():
        label = Text(rate_label(rate.rate))
        table.add_row(Text(rate.role), roles.layer_name(rate.layer), label, f"{rate.head_share:.1%}", step_label(when))
    return table
