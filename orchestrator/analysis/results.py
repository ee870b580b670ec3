"""The results of a sweep in a few tables: for the end of a run, `--json` and MLflow."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from attnsweep.orchestrator.analysis.answer import Record, markdown_table
from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.preferred import MOST_SHOWN, BestTrial, FrontTrial, Preferred, read_preferred
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
from attnsweep.search_spaces.sweep import Sweep

_WELL_PAST = 2.0


@dataclass(frozen=True, slots=True)
class StuckOrSlow(Record):
    """What laws of the start say of the stuck trainings of a sweep.

    Attributes:
        stuck: Trained for at least twice the predicted steps: more of them would not have helped.
        slow: Still where they started, and trained for fewer steps than predicted: more of them free them.
        unknown: No law is known, or the steps decide neither.
        ratio: The median of trained over predicted steps; infinite where most leave at once.
    """

    stuck: int
    slow: int
    unknown: int
    ratio: float

    def sentence(self) -> str:
        """The answer in one line."""
        return (
            f"stuck or slow: of {self.stuck + self.slow + self.unknown} stuck trainings, {self.stuck} took at least"
            f" {_WELL_PAST:g} times the steps predicted for leaving their start, {self.slow} stopped earlier,"
            f" of {self.unknown} it is not known"
        )


def read_stuck_or_slow(connection: duckdb.DuckDBPyConnection) -> StuckOrSlow | None:
    """The answer for the trainings in a ledger; `None` if no stuck one has a prediction."""
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    if "predicted_escape_step" not in columns:
        return None  # All rows are of a version without this column.
    ((n, stuck, slow, ratio),) = connection.execute(
        f"""
        select count(*), count(*) filter (ratio >= {_WELL_PAST}),
            count(*) filter (ratio < 1 and outcome = 'degenerate_zero'), median(ratio)
        from (select outcome, n_steps / predicted_escape_step as ratio from trainings
              where stuck)
        """
    ).fetchall()
    return None if ratio is None else StuckOrSlow(stuck, slow, n - stuck - slow, ratio)


@dataclass(frozen=True, slots=True)
class SweepResults(Record):
    """The results of a sweep.

    Attributes:
        outcomes: The number of trainings by outcome.
        stuck: The stuck rate over all trials.
        solved: The solved rate over all trials.
        loss_median: The median over trials of their `loss_median`; `None` if that is not finite.
        by_parameter: The stuck rate by each swept parameter.
        preferred: The trials that the objectives prefer.
        roles: The roles of attention heads; `None` if no head could have a role.
        stuck_or_slow: Which stuck trainings more steps free; `None` where no law says so.
    """

    outcomes: dict[str, int]
    stuck: Rate
    solved: Rate
    loss_median: float | None
    by_parameter: tuple[ParameterRates, ...]
    preferred: Preferred
    roles: RoleResults | None
    stuck_or_slow: StuckOrSlow | None

    json_keys = (
        *("n_trainings", "outcomes", "stuck_rate=stuck", "solved_rate=solved", "stuck_or_slow", "loss_median"),
        *("stuck_rate_by=by_parameter", "best_trial=best", "pareto_front=front", "roles", "role_rates_by"),
    )

    @property
    def best(self) -> BestTrial | None:
        """The trial that the objective prefers; `None` of several objectives, or if there is none."""
        return self.preferred.best

    @property
    def front(self) -> tuple[FrontTrial, ...] | None:
        """The Pareto front of several objectives; `None` of one."""
        return self.preferred.front

    @property
    def n_trainings(self) -> int:
        """The number of rows in the ledger."""
        return sum(self.outcomes.values())

    @property
    def pruned_note(self) -> str | None:
        """How many trainings the rates leave out because they were pruned; `None` if there are none."""
        return pruned_note(self.outcomes)

    @property
    def role_rates_by(self) -> list[dict[str, Any]] | None:
        """The rates of roles by parameter, for JSON."""
        return None if self.roles is None else self.roles.by_parameter_as_json()

    def markdown(self) -> str:
        """The results as tables in Markdown."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from markdown_table(("outcome", "trainings"), self.outcomes.items())
        yield ""
        yield f"Stuck rate: {rate_label(self.stuck)} (95% interval, trainings of one trial not taken as independent)"
        if self.pruned_note is not None:
            yield ""
            yield self.pruned_note.capitalize()
        if self.stuck_or_slow is not None:
            yield ""
            yield self.stuck_or_slow.sentence().capitalize()
        for sentence in self.preferred.sentences():
            yield ""
            yield sentence
        if self.front:
            names = (*self.front[0].values, *self.front[0].parameters)
            yield ""
            yield from markdown_table(
                ("trial", *names), ((each.trial, *each.labels()) for each in self.front[:MOST_SHOWN])
            )
        if self.best is not None:
            values = ", ".join(f"{name}={value_label(value)}" for name, value in self.best.parameters.items())
            yield ""
            yield f"Best trial: {self.best.trial} ({values}), {self.best.objective} {self.best.value:.4g}"
        for each in self.by_parameter:
            yield ""
            rows = [(one.label, one.n_trials, rate_label(one.rate)) for one in each.bins]
            yield from markdown_table((each.title, "trials", "stuck rate (95% interval)"), rows)
        if self.roles is not None:
            yield ""
            yield from self.roles.markdown_lines()


def read_results(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> SweepResults:
    """Reads a sweep's results from its ledger."""
    return SweepResults(
        outcome_counts(connection),
        stuck_rate(connection, spec),
        solved_rate(connection, spec),
        loss_median(connection),
        rates_by(connection, spec),
        read_preferred(connection, spec),
        read_role_results(connection, spec),
        read_stuck_or_slow(connection),
    )
