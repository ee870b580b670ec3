"""The results of a sweep in a few tables: for the end of a run, `--json` and MLflow."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from attnsweep.orchestrator.analysis.best_trial import BestTrial, best_trial
from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.rates.answers import outcome_counts, pruned_note
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    ParameterRates,
    loss_median,
    rates_by,
    solved_rate,
    stuck_rate,
)
from attnsweep.orchestrator.analysis.rates.intervals import Rate, rate_label
from attnsweep.orchestrator.analysis.roles.results import RoleResults, read_role_results
from attnsweep.orchestrator.analysis.stuck_or_slow import StuckOrSlow, read_stuck_or_slow
from attnsweep.search_spaces.sweep import Sweep


@dataclass(frozen=True, slots=True)
class SweepResults:
    """The results of a sweep.

    Attributes:
        outcomes: The number of trainings by outcome.
        stuck: The stuck rate over all trials.
        solved: The solved rate over all trials.
        loss_median: The median over trials of their `loss_median`; `None` if that is not finite.
        by_parameter: The stuck rate by each swept parameter.
        best: The trial that the objective prefers; `None` if no trial is complete.
        roles: The roles of attention heads; `None` if no head could have a role.
        stuck_or_slow: Which stuck trainings more steps free; `None` where no law says so.
    """

    outcomes: dict[str, int]
    stuck: Rate
    solved: Rate
    loss_median: float | None
    by_parameter: tuple[ParameterRates, ...]
    best: BestTrial | None
    roles: RoleResults | None
    stuck_or_slow: StuckOrSlow | None

    @property
    def n_trainings(self) -> int:
        """The number of rows in the ledger."""
        return sum(self.outcomes.values())

    @property
    def pruned_note(self) -> str | None:
        """How many trainings the rates leave out because they were pruned; `None` if there are none."""
        return pruned_note(self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """The results as plain values for JSON."""
        return {
            "n_trainings": self.n_trainings,
            "outcomes": self.outcomes,
            "stuck_rate": self.stuck.as_json(),
            "solved_rate": self.solved.as_json(),
            "stuck_or_slow": None if self.stuck_or_slow is None else self.stuck_or_slow.as_json(),
            "loss_median": self.loss_median,
            "stuck_rate_by": [each.as_json() for each in self.by_parameter],
            "best_trial": None if self.best is None else dataclasses.asdict(self.best),
            "roles": None if self.roles is None else self.roles.as_json(),
            "role_rates_by": None if self.roles is None else self.roles.by_parameter_as_json(),
        }

    def markdown(self) -> str:
        """The results as tables in Markdown."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "| outcome | trainings |"
        yield "|---|---|"
        yield from (f"| {outcome} | {count} |" for outcome, count in self.outcomes.items())
        yield ""
        yield f"Stuck rate: {rate_label(self.stuck)} (95% interval, trainings of one trial not taken as independent)"
        if self.pruned_note is not None:
            yield ""
            yield self.pruned_note.capitalize()
        if self.stuck_or_slow is not None:
            yield ""
            yield self.stuck_or_slow.sentence().capitalize()
        if self.best is not None:
            values = ", ".join(f"{name}={value_label(value)}" for name, value in self.best.parameters.items())
            yield ""
            yield f"Best trial: {self.best.trial} ({values}), objective {self.best.value:.4g}"
        for each in self.by_parameter:
            yield ""
            yield f"| {each.title} | trials | stuck rate (95% interval) |"
            yield "|---|---|---|"
            yield from (f"| {one.label} | {one.n_trials} | {rate_label(one.rate)} |" for one in each.bins)
        if self.roles is not None:
            yield ""
            yield from self.roles.markdown_lines()


def read_results(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> SweepResults:
    """Reads a sweep's results from its ledger.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
    return SweepResults(
        outcome_counts(connection),
        stuck_rate(connection, spec),
        solved_rate(connection, spec),
        loss_median(connection),
        rates_by(connection, spec),
        best_trial(connection, spec),
        read_role_results(connection, spec),
        read_stuck_or_slow(connection),
    )
