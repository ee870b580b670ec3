"""The trial that a sweep's objective prefers."""

from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.rates.by_parameter import swept_names
from attnsweep.orchestrator.analysis.rates.intervals import Rate, trial_rate
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.objective import objective_value
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
    """The complete trial with the best objective; among equals, that with the lowest median loss.

    `None` where no trial is complete.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
    names = swept_names(spec)
    columns = "".join(f", any_value({param_column(name)})" for name in names)
    complete = set(complete_trials(connection, spec.replicates))
    found = connection.execute(
        f"""
        select trial, list(outcome) filter (outcome != 'failed'),
            list(stuck) filter (outcome != 'failed'), list(eval_loss) filter (outcome != 'failed')
            {columns}
        from trainings group by trial having count(*) filter (outcome != 'failed') > 0
        """
    ).fetchall()
    rows = [row for row in found if row[0] in complete]
    if not rows:
        return None
    sign = 1.0 if spec.objective.direction == "minimize" else -1.0
    values = [sign * objective_value(spec.objective, *row[1:4]) for row in rows]
    least = min(values)
    equals = [row for row, value in zip(rows, values, strict=True) if value == least]
    best = min(equals, key=lambda row: (objective_value(LossQuantile(), *row[1:4]), row[0]))
    trial, _, stuck, _, *parameters = best
    rate = trial_rate(spec.replicates, sum(stuck), len(stuck))
    return BestTrial(trial, sign * least, dict(zip(names, parameters, strict=True)), rate)
