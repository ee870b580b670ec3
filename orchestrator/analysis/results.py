"""The results of a sweep in a few tables: for the end of a run, `--json` and MLflow."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow.compute as pc

from attnsweep.orchestrator.analysis.answer import Record, markdown_table
from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.rates.answers import outcome_counts, pruned_note
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    ParameterRates,
    loss_median,
    rates_by,
    solved_rate,
    stuck_rate,
    swept_names,
)
from attnsweep.orchestrator.analysis.rates.intervals import Rate, rate_label, trial_rate
from attnsweep.orchestrator.analysis.roles.results import RoleResults, read_role_results
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.orchestrator.ledger.trial import complete_among, ended_trainings, judging_columns, objective_values
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import LossQuantile, Sweep

_WELL_PAST = 2.0


@dataclass(frozen=True, slots=True)
class BestTrial(Record):
    """The trial that the sweep's objective prefers.

    Attributes:
        trial: The trial's number.
        value: The trial's objective.
        parameters: The trial's values of the parameters that the sweep varies.
        rate: The trial's stuck rate.
        objective: The objective's name.
    """

    trial: int
    value: float
    parameters: dict[str, Scalar]
    rate: Rate
    objective: str

    def as_json(self) -> dict[str, Any]:
        """The fields; unlike elsewhere, those of the rate too."""
        return dataclasses.asdict(self)


def best_trial(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> BestTrial | None:
    """The complete trial with the best objective; of equals, the one with the lowest median loss.

    `None` if no trial is complete.
    """
    rows = judging_columns(connection)
    complete = complete_among(rows, spec.replicates)
    ended = ended_trainings(rows.filter(pc.field("trial").isin(complete)))
    values = objective_values(ended, spec.objective)
    if not values:
        return None
    value = min(values.values()) if spec.objective.direction == "minimize" else max(values.values())
    losses = objective_values({each: ended[each] for each in values if values[each] == value}, LossQuantile())
    trial = min(losses, key=lambda each: (losses[each], each))
    judged = ended[trial].judged
    rate = trial_rate(spec.replicates, sum(each.stuck for each in judged), len(judged))
    return BestTrial(trial, value, _parameters(connection, trial, swept_names(spec)), rate, spec.objective.label)


def _parameters(connection: duckdb.DuckDBPyConnection, trial: int, names: Sequence[str]) -> dict[str, Scalar]:
    columns = "".join(f", any_value({param_column(name)})" for name in names)
    found = connection.execute(f"select count(*){columns} from trainings where trial = {trial}").fetchall()
    return dict(zip(names, found[0][1:], strict=True))


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

    json_keys = (
        *("n_trainings", "outcomes", "stuck_rate=stuck", "solved_rate=solved", "stuck_or_slow", "loss_median"),
        *("stuck_rate_by=by_parameter", "best_trial=best", "roles", "role_rates_by"),
    )

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
        best_trial(connection, spec),
        read_role_results(connection, spec),
        read_stuck_or_slow(connection),
    )
