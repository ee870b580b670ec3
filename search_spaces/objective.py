"""The objective value of a trial that is reported to the sampler. It is always finite."""

import math
from collections.abc import Sequence

from attnsweep.search_spaces.measured import Measured, OnsetQuantile, Rate, StuckRate
from attnsweep.workloads.vocabulary import STUCK

N_JUDGED = "n_judged"
"""The trial attribute with the number of trainings behind its value, for sweeps whose trials differ in that number."""
WORST_LOSS = NEVER = 1e12
"""The largest loss that is reported to a sampler, and the onset of an outcome that never came. Optuna turns NaN into
the state FAIL, from which samplers learn nothing."""


def objective_value(
    objective: Measured,
    outcome: Sequence[str],
    stuck: Sequence[bool],
    loss: Sequence[float | None],
    onset: Sequence[int | None] = (),
) -> float:
    """Returns the objective's value over a trial's trainings. The caller leaves out failed trainings.

    A diverged training counts as the worst value in the objective's direction, so that the sampler avoids regions where
    trainings diverge. Reported stuck rates count it as not stuck.

    Args:
        objective: The sweep's objective.
        outcome: The outcome of each training.
        stuck: Whether each training ended stuck.
        loss: The `eval_loss` of each training; `None` if it was not finite.
        onset: The step from which the training's outcome held, for each training; `None` without one.
    """
    if isinstance(objective, StuckRate):
        worst_counts = objective.direction == "minimize"
        n_bad = sum(
            is_stuck or (worst_counts and label == "diverged") for is_stuck, label in zip(stuck, outcome, strict=True)
        )
        return n_bad / len(stuck)
    if isinstance(objective, Rate):
        counts = {objective.outcome, "diverged"} if objective.direction == "minimize" else {objective.outcome}
        n = sum(
            label in counts or (is_stuck and STUCK in counts) for is_stuck, label in zip(stuck, outcome, strict=True)
        )
        return n / len(stuck)
    if isinstance(objective, OnsetQuantile):
        onsets = zip(outcome, onset, strict=True)
        steps = [NEVER if step is None or label != objective.outcome else float(step) for label, step in onsets]
        return _quantile(steps, objective.quantile)
    worst = WORST_LOSS
    if objective.direction == "maximize":
        # A training that diverged gets the worst loss, because its recorded finite loss might otherwise be among the
        # best.
        loss = [None if label == "diverged" else value for value, label in zip(loss, outcome, strict=True)]
        worst = -WORST_LOSS
    return _quantile([worst if value is None else min(value, WORST_LOSS) for value in loss], objective.quantile)


def _quantile(values: Sequence[float], quantile: float) -> float:
    # The quantile is an order statistic, because interpolation would give losses that no training had. NumPy's method
    # `inverted_cdf` gives the same, but takes a hundred times as long for a few numbers.
    return float(sorted(values)[max(math.ceil(len(values) * quantile - 1), 0)])
