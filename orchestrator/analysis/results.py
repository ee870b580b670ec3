"""The results of a sweep in a few tables, which are printed when a run ends, by `--json`, and logged to MLflow."""

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
    """The counts of stuck trainings that more steps would not have freed, and of those that were merely slow.

    Attributes:
        stuck: Trained for at least twice the predicted steps: more steps would not have helped.
        slow: Still at their start, and trained for fewer steps than predicted: more steps would free them.
        unknown: There is no prediction, or the number of steps decides for neither.
        ratio: The median of trained over predicted steps; infinite where most leave at once.
    """

    stuck: int
    slow: int
    unknown: int
    ratio: float

    def sentence(self) -> str:
        """Formats the counts of stuck, slow and undecided trainings as one line."""
        return (
            f"stuck or slow: of {self.stuck + self.slow + self.unknown} stuck trainings, {self.stuck} took at least"
            f" {_WELL_PAST:g} times the steps predicted for leaving their start, {self.slow} stopped earlier,"
            f" and {self.unknown} are not decided"
        )


def read_stuck_or_slow(connection: duckdb.DuckDBPyConnection) -> StuckOrSlow | None:
    """Counts the stuck and the merely slow trainings of a ledger; `None` if no stuck training has a predicted escape
    step."""
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    if "predicted_escape_step" not in columns:
        return None  # All rows are from versions of attnsweep without this column, so no prediction is known.
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
    """The results of a sweep, computed from its ledger: counts, rates, the best trials, and roles of attention heads.

    Attributes:
        outcomes: The number of trainings by outcome.
        stuck: The stuck rate over all trials.
        solved: The solved rate over all trials.
        loss_median: The median over trials of their `loss_median`; `None` if that is not finite.
        by_parameter: The stuck rate by each swept parameter.
        preferred: The trials that the objectives prefer.
        roles: The roles of attention heads; `None` if no head could have a role.
        stuck_or_slow: How many stuck trainings more steps would free; `None` without predictions.
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
        """The best trial by the sweep's objective; `None` if there are several objectives, or if no trial is
        complete."""
        return self.preferred.best

    @property
    def front(self) -> tuple[FrontTrial, ...] | None:
        """The Pareto front if the sweep has several objectives; `None` if it has one."""
        return self.preferred.front

    @property
    def n_trainings(self) -> int:
        """The number of rows in the ledger."""
        return sum(self.outcomes.values())

    @property
    def pruned_note(self) -> str | None:
        """A sentence about trainings that the rates leave out because they were pruned; `None` if there are none."""
        return pruned_note(self.outcomes)

    @property
    def role_rates_by(self) -> list[dict[str, Any]] | None:
        """The rates of attention heads' roles by parameter, as plain values for JSON."""
        return None if self.roles is None else self.roles.by_parameter_as_json()

    def markdown(self) -> str:
        """Formats the results as Markdown tables."""
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
                ("trial", *names), ((trial.trial, *trial.labels()) for trial in self.front[:MOST_SHOWN])
            )
        if self.best is not None:
            values = ", ".join(f"{name}={value_label(value)}" for name, value in self.best.parameters.items())
            yield ""
            yield f"Best trial: {self.best.trial} ({values}), {self.best.objective} {self.best.value:.4g}"
        for rates in self.by_parameter:
            yield ""
            rows = [(bin_.label, bin_.n_trials, rate_label(bin_.rate)) for bin_ in rates.bins]
            yield from markdown_table((rates.title, "trials", "stuck rate (95% interval)"), rows)
        if self.roles is not None:
            yield ""
            yield from self.roles.markdown_lines()


def read_results(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> SweepResults:
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
