"""Applies a workload's `judge` and its conditions to measurements, and checks the resulting labels. Axes: L training, P
probe."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Evidence, P, Verdicts, Workload, where_held
from attnsweep.workloads.errors import LabelError, did_you_mean
from attnsweep.workloads.vocabulary import with_own

_ROUNDING = 1e-5
"""How far below 0 rounding may put a loss, as a share of the largest reference level."""


def judged(workload: Workload[P], parameters: P, evidence: Evidence) -> Verdicts:
    """Labels all trainings at all measured steps with the workload's `judge`, and checks the labels against those that
    the workload declares.

    Raises:
        TypeError: If `judge` does not return `Verdicts`.
        ValueError: If the verdicts are not of shape (n_trainings, n_probes).
        LabelError: If an outcome that `judge` could give, whether or not it does, is neither a shipped one nor declared
            by the workload.
    """
    verdicts = workload.judge(parameters, evidence)
    if not isinstance(verdicts, Verdicts):
        raise TypeError(
            f"{workload.name}.judge: got a result of the type {type(verdicts).__name__}, expected a Verdicts object"
        )
    expected = evidence.metrics["eval_loss"].shape
    if verdicts.outcome.shape != expected:
        raise ValueError(
            f"{workload.name}.judge: got labels of the shape {verdicts.outcome.shape}, expected the shape {expected}, "
            "which is one label for each training and each probe (step with a measurement)"
        )
    known = [name for name, outcome in with_own(workload.outcomes).items() if outcome.is_judged]
    for label in verdicts.possible or np.unique(verdicts.outcome).tolist():
        if label not in known:
            outcomes = ", ".join(known)
            raise LabelError(
                "an outcome of judge",
                given=label,
                expected=f"an outcome that the workload declares: {outcomes}",
                fix=did_you_mean(
                    label,
                    known,
                    f"declare the outcome: outcomes = {{{label!r}: attnsweep.Outcome(...)}}; or return a known"
                    " outcome with a"
                    " detail of your own: (outcome, detail)",
                ),
            )
    return verdicts


def first_held(
    workload: Workload[P], parameters: P, evidence: Evidence, last_probe: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Returns for each event of each training the index of the first probe at which the event's condition held; -1 if
    at none.

    Args:
        last_probe: For each training the last probe that it reached; later probes are ignored.

    Raises:
        ValueError: If an event's condition is a function that does not return an array of bool of shape (n_trainings,
            n_probes).
        SpecError: If the condition is a text that is not a condition, or names a metric that is not measured.
    """
    expected = evidence.metrics["eval_loss"].shape
    first = {}
    for name, when in workload.events.items():
        holds = np.asarray(where_held(when, parameters, evidence, f"{workload.name}.events, {name}"))
        if holds.dtype != np.bool_ or holds.shape != expected:
            raise ValueError(
                f"{workload.name}.events, {name}: got a {holds.dtype} array of the shape {holds.shape}, expected a"
                f" bool array of the shape {expected}: one value for each training and each probe (step with a"
                " measurement)"
            )
        holds = holds & (np.arange(expected[1]) <= last_probe[:, None])
        first[name] = np.where(holds.any(axis=1), holds.argmax(axis=1), -1)
    return first


def is_stuck(workload: Workload[Any], outcome: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Returns which of the given outcomes count as stuck, as a bool array of the same shape as `outcome`."""
    return np.isin(outcome, [name for name, meaning in with_own(workload.outcomes).items() if meaning.is_stuck])


def least_losses(workload: Workload[Any], levels: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Returns a lower bound of each training's `eval_loss`. A loss below the bound cannot be right, so the training
    counts as diverged.

    The bound is 0 minus a margin for rounding, or minus infinity if the workload allows negative losses or one of the
    training's reference levels is negative.
    """
    known_NL = np.nan_to_num(np.stack(list(levels.values())), nan=0.0)
    may_be_negative = workload.loss_may_be_negative | (known_NL.min(0) < 0)
    return np.where(may_be_negative, -np.inf, -_ROUNDING * known_NL.max(0))
