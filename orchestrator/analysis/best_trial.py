"""The trial that a sweep's objective prefers."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow.compute as pc

from attnsweep.orchestrator.analysis.rates.by_parameter import swept_names
from attnsweep.orchestrator.analysis.rates.intervals import Rate, trial_rate
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.orchestrator.ledger.trial import complete_among, ended_trainings, judging_columns, objective_values
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import LossQuantile, Sweep


@dataclass(frozen=True, slots=True)
class BestTrial:
    """The trial that the sweep's objective prefers.

    Attributes:
        trial: The trial's number.
        value: The trial's objective.
        parameters: The trial's values of the parameters that the sweep varies.
        rate: The trial's stuck rate.
    """

    trial: int
    value: float
    parameters: dict[str, Scalar]
    rate: Rate


def best_trial(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> BestTrial | None:
    """The complete trial with the best objective; of equals, the one with the lowest median loss.

    `None` if no trial is complete.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
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
    return BestTrial(trial, value, _parameters(connection, trial, swept_names(spec)), rate)


def _parameters(connection: duckdb.DuckDBPyConnection, trial: int, names: Sequence[str]) -> dict[str, Scalar]:
    columns = "".join(f", any_value({param_column(name)})" for name in names)
    found = connection.execute(f"select count(*){columns} from trainings where trial = {trial}").fetchall()
    return dict(zip(names, found[0][1:], strict=True))
