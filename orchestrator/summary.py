"""What a sweep found, in a screenful and as JSON: read from the ledger."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.analysis.intervals import Rate
from orchestrator.analysis.rates import BestTrial, ParameterRates, best_trial, outcome_counts, rates_by, stuck_rate
from orchestrator.analysis.rates import value_label as shown
from orchestrator.ledger import Ledger
from orchestrator.sweep_directory import SweepDirectory


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The state of a sweep.

    Attributes:
        directory: Where it is.
        finished: Whether its budget is spent.
        n_trials: Trials with at least one training.
        outcomes: Trainings by outcome, most frequent first.
        stuck: The stuck rate of all trainings.
        by_parameter: The stuck rate by swept parameter.
        best: The best complete trial.
        seconds: Wall time of this run.
        trainings_per_second: Of this run.
        mlflow: Where MLflow has it, or why not.
    """

    directory: SweepDirectory
    finished: bool
    n_trials: int
    outcomes: Mapping[str, int]
    stuck: Rate
    by_parameter: tuple[ParameterRates, ...]
    best: BestTrial | None
    seconds: float
    trainings_per_second: float
    mlflow: str

    @property
    def n_trainings(self) -> int:
        """Trainings in the ledger."""
        return sum(self.outcomes.values())

    @property
    def n_failed(self) -> int:
        """Trainings that raised."""
        return self.outcomes.get("failed", 0)

    def to_json(self) -> str:
        """One line of JSON, for scripts."""
        content = {
            "directory": str(self.directory.path),
            "sweep": self.directory.sweep,
            "finished": self.finished,
            "trials": self.n_trials,
            "trainings": self.n_trainings,
            "outcomes": dict(self.outcomes),
            "stuck_rate": self.stuck.share,
            "stuck_rate_low": self.stuck.low,
            "stuck_rate_high": self.stuck.high,
            "best_trial": self.best.trial if self.best else None,
            "seconds": round(self.seconds, 3),
            "trainings_per_second": round(self.trainings_per_second, 3),
        }
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console) -> None:
        """Prints the summary with the next commands to type."""
        place = shlex.quote(str(self.directory.path))
        console.print(
            f"\n[bold]{escape(self.directory.sweep)}[/]  {self.n_trainings} trainings of {self.n_trials} trials"
        )
        console.print(_outcome_table(self.outcomes))
        console.print(f"stuck rate {in_words(self.stuck)}, 95% interval over trials")
        for rates in self.by_parameter:
            console.print(_rate_table(rates))
        if self.best is not None:
            values = "  ".join(f"{name}={shown(value)}" for name, value in self.best.parameters.items())
            console.print(
                f"best trial #{self.best.trial}: {values}  ({_objective(self.directory)} {self.best.value:.4g})"
            )
        console.print(f"{self.seconds:.1f} s, {self.trainings_per_second:.0f} trainings per second")
        for line in self.next_steps(place):
            console.print(line, soft_wrap=True, highlight=False, markup=False)

    def next_steps(self, place: str) -> list[str]:
        """Where things are and what to type next."""
        lines = [f"ledger   {place}/trainings/*.parquet", f"MLflow   {self.mlflow}"]
        if not self.finished:
            return [*lines, f"interrupted; go on with: attnsweep resume {place}"]
        query = "select outcome, count(*) from trainings group by 1"
        lines.append(f'next     attnsweep query {place} "{query}"')
        if self.n_failed:
            errors = "select trial, replicate, error from trainings where outcome = 'failed'"
            lines.append(f'failed   attnsweep query {place} "{errors}"')
        return lines


def summarize(directory: SweepDirectory, *, finished: bool, seconds: float, n_before: int, mlflow: str) -> Summary:
    """Reads a sweep's summary from its ledger.

    Args:
        directory: The sweep.
        finished: Whether its budget is spent.
        seconds: Wall time of this run.
        n_before: Trainings that earlier runs did.
        mlflow: Where MLflow has it, or why not.
    """
    with Ledger(directory.path).connect() as connection:
        outcomes = outcome_counts(connection)
        (n_trials,) = connection.execute("select count(distinct trial) from trainings").fetchall()[0]
        return Summary(
            directory=directory,
            finished=finished,
            n_trials=n_trials,
            outcomes=outcomes,
            stuck=stuck_rate(connection),
            by_parameter=rates_by(connection, directory.spec),
            best=best_trial(connection, directory.spec),
            seconds=seconds,
            trainings_per_second=(sum(outcomes.values()) - n_before) / max(seconds, 1e-9),
            mlflow=mlflow,
        )


def in_words(rate: Rate) -> str:
    """`0.25 [0.20, 0.31]`, or a dash where nothing was counted."""
    if rate.share is None or rate.low is None or rate.high is None:
        return "-"
    return f"{rate.share:.2f} [{rate.low:.2f}, {rate.high:.2f}]"


def _outcome_table(outcomes: Mapping[str, int]) -> Table:
    table = Table("outcome", "trainings", "share", box=None, header_style="bold")
    total = sum(outcomes.values())
    for outcome, count in outcomes.items():
        table.add_row(outcome, str(count), f"{count / total:.1%}")
    return table


def _rate_table(rates: ParameterRates) -> Table:
    name = f"{rates.parameter} ({rates.where})" if rates.where else rates.parameter
    table = Table(name, "trials", "trainings", "stuck", "stuck rate [95%]", box=None, header_style="bold")
    for each in rates.bins:
        table.add_row(each.label, str(each.n_trials), str(each.rate.n), str(each.rate.k), in_words(each.rate))
    return table


def _objective(directory: SweepDirectory) -> str:
    objective = directory.spec.objective
    return f"{objective.direction}d {objective.kind}"
