"""A workload's verdicts, checked, and the least loss that a training can have. Axes: L lane."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Evidence, P, Verdicts, Workload, where_held
from attnsweep.workloads.errors import LabelError, did_you_mean
from attnsweep.workloads.vocabulary import with_own

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
        LabelError: If an outcome that it could give, whether or not it does, is neither a shipped one nor the
            workload's own.
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
    known = [name for name, outcome in with_own(workload.outcomes).items() if outcome.is_judged]
    for label in verdicts.possible or np.unique(verdicts.outcome).tolist():
        if label not in known:
            raise LabelError(
                "an outcome of judge",
                given=label,
                expected=", ".join(known),
                fix=did_you_mean(
                    label,
                    known,
                    f"declare it: outcomes = {{{label!r}: attnsweep.Outcome(...)}}; or say what it means in the"
                    " detail: (outcome, detail)",
                ),
            )
    return verdicts


def first_held(
    workload: Workload[P], parameters: P, evidence: Evidence, last_probe: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """(L,) by event: the first probe at which it held, up to each training's last one; -1 where it held at none.

    Args:
        workload, parameters, evidence: As `judged` takes them.
        last_probe: (L,) the last probe that each training reached.

    Raises:
        ValueError: If an event's condition is no array of bool of shape (L, P).
        SpecError: If it is a text that is no condition, or names what is not measured.
    """
    expected = evidence.metrics["eval_loss"].shape
    first = {}
    for name, when in workload.events.items():
        holds = np.asarray(where_held(when, parameters, evidence, f"{workload.name}.events, {name}"))
        if holds.dtype != np.bool_ or holds.shape != expected:
            raise ValueError(
                f"{workload.name}.events, {name}: got an array of {holds.dtype} of shape {holds.shape}, expected bool"
                f" and {expected}: one for each training and probe"
            )
        holds = holds & (np.arange(expected[1]) <= last_probe[:, None])
        first[name] = np.where(holds.any(axis=1), holds.argmax(axis=1), -1)
    return first


def is_stuck(workload: Workload[Any], outcome: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Which of these outcomes count as stuck."""
    return np.isin(outcome, [name for name, each in with_own(workload.outcomes).items() if each.is_stuck])


def least_losses(workload: Workload[Any], levels: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """(L,) the `eval_loss` below which a training has diverged.

    It is 0, less a margin for rounding, for losses such as a squared error or a cross-entropy. It is minus infinity if
    the workload allows negative losses or one of the reference levels (L,) is negative.
    """
    known_NL = np.nan_to_num(np.stack(list(levels.values())), nan=0.0)
    may_be_negative = workload.loss_may_be_negative | (known_NL.min(0) < 0)
    return np.where(may_be_negative, -np.inf, -_ROUNDING * known_NL.max(0))
