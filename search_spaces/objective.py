"""What the sampler is told of a trial: always a finite number."""

from collections.abc import Sequence

import numpy as np

from search_spaces.sweep import LossQuantile, StuckRate

WORST_LOSS = 1e12
"""Told for a loss that is not finite or larger: NaN would become FAIL, from which a sampler learns nothing."""


def objective_value(objective: StuckRate | LossQuantile, stuck: Sequence[bool], loss: Sequence[float | None]) -> float:
    """The objective over a trial's trainings, failed ones left out.

    Args:
        objective: What is asked for.
        stuck: Whether each training ended stuck.
        loss: The `eval_loss` of each, `None` where it was not finite.
    """
    if isinstance(objective, StuckRate):
        return float(np.mean(stuck))
    finite = [WORST_LOSS if value is None else min(value, WORST_LOSS) for value in loss]
    # An order statistic: interpolating towards WORST_LOSS would invent losses that no training had.
    return float(np.quantile(finite, objective.quantile, method="inverted_cdf"))
