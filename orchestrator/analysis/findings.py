"""What a sweep found, in a few tables: for the end of a run, `--json` and MLflow."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from orchestrator.analysis.intervals import Rate, rate_label
from orchestrator.analysis.rates import (
    BestTrial,
    ParameterRates,
    best_trial,
    loss_median,
    outcome_counts,
    rates_by,
    solved_rate,
    stuck_rate,
    value_label,
)
from orchestrator.analysis.role_findings import RoleFindings, read_role_findings
from search_spaces.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Findings:
    """What became of a sweep.

    Attributes:
        outcomes: Trainings by outcome.
        stuck: The stuck rate over all trials.
        solved: The solved rate over all trials.
        loss_median: The median over trials of their `loss_median`; `None` where that is not finite.
        by_parameter: The same by each swept parameter.
        best: The trial that the objective prefers.
        roles: What its attention heads came to do; `None` where it has none that could have a role.
    """

    outcomes: dict[str, int]
    stuck: Rate
    solved: Rate
    loss_median: float | None
    by_parameter: tuple[ParameterRates, ...]
    best: BestTrial | None
    roles: RoleFindings | None

    @property
    def n_trainings(self) -> int:
        """Rows of the ledger."""
        return sum(self.outcomes.values())

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "n_trainings": self.n_trainings,
            "outcomes": self.outcomes,
            "stuck_rate": self.stuck.as_json(),
            "solved_rate": self.solved.as_json(),
            "loss_median": self.loss_median,
            "stuck_rate_by": [each.as_json() for each in self.by_parameter],
            "best_trial": None if self.best is None else dataclasses.asdict(self.best),
            "roles": None if self.roles is None else self.roles.as_json(),
            "role_rates_by": None if self.roles is None else self.roles.by_parameter_as_json(),
        }

    def markdown(self) -> str:
        """Tables in Markdown."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "| outcome | trainings |"
        yield "|---|---|"
        yield from (f"| {outcome} | {count} |" for outcome, count in self.outcomes.items())
        yield ""
        yield f"Stuck rate: {rate_label(self.stuck)} (95% interval, trainings of one trial not taken as independent)"
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


def read_findings(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> Findings:
    """Reads a sweep's findings from its ledger.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
    return Findings(
        outcome_counts(connection),
        stuck_rate(connection, spec),
        solved_rate(connection, spec),
        loss_median(connection),
        rates_by(connection, spec),
        best_trial(connection, spec),
        read_role_findings(connection, spec),
    )
