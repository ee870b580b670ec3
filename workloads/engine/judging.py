"""A workload's verdicts, checked, and the least loss that a training can have. Axes: L lane."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Evidence, P, Verdicts, Workload

_ROUNDING = 1e-5
"""How far a loss may lie below 0 through rounding, as a share of the largest reference level."""


def judged(workload: Workload[P], parameters: P, evidence: Evidence) -> Verdicts:
    """The workload's label of each training at each probe.

    Args:
        workload: The problem.
        parameters: Those of the first lane.
        evidence: The measurements, (L, P).

    Raises:
        TypeError: If `judge` does not return `Verdicts`.
        ValueError: If the verdicts are not of shape (L, P).
    """
    verdicts = workload.judge(parameters, evidence)
    if not isinstance(verdicts, Verdicts):
        raise TypeError(f"{workload.name}.judge: got {type(verdicts).__name__}, expected Verdicts")
    expected = evidence.metrics["eval_loss"].shape
    if verdicts.outcome.shape != expected:
        raise ValueError(
            f"{workload.name}.judge: got labels of shape {verdicts.outcome.shape}, expected {expected}: "
            "one for each training and probe"
        )
    return verdicts


def least_losses(workload: Workload[Any], levels: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """(L,) the `eval_loss` below which a training has diverged.

    It is 0, less a margin for rounding, for losses such as a squared error or a cross-entropy. It is minus infinity if
    the workload allows negative losses or one of the reference levels (L,) is negative.
    """
    known_NL = np.nan_to_num(np.stack(list(levels.values())), nan=0.0)
    may_be_negative = workload.loss_may_be_negative | (known_NL.min(0) < 0)
    return np.where(may_be_negative, -np.inf, -_ROUNDING * known_NL.max(0))
