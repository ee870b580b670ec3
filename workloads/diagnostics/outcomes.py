"""The measures and thresholds by which all workloads decide outcomes. Axes: L lane, P probe.

The thresholds are ours; docs/zeros.md shows how much each of them matters.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Evidence, Verdicts
from attnsweep.workloads.engine.schedule import tail_start
from attnsweep.workloads.vocabulary import MOVING_SHARE

AT_LEVEL = 0.01
"""A loss within this share of a reference level is at the level."""
STATIONARY_GAMMA = 1e-2
"""A training is stationary if its scale-free gradient is below this."""
DIVERGED_FACTOR = 3.0
"""A loss above this multiple of the zero predictor's, and above its own start, has diverged."""
OVERFIT_SHARE = 0.05
"""A training on a finite text is overfit if its held-out loss has risen by this share above its minimum while its
training loss kept falling."""


def gamma(evidence: Evidence) -> NDArray[np.float64]:
    """The scale-free gradient |grad| |theta| / loss, (L, P)."""
    loss = evidence.metrics["eval_loss"]
    with np.errstate(divide="ignore", invalid="ignore"):
        return evidence.metrics["grad_norm"] * evidence.metrics["param_norm"] / loss


def at_level(loss: NDArray[np.float64], level: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(L, P) bool, where losses (L, P) are within `AT_LEVEL` of a level (L,)."""
    return np.abs(loss - level[:, None]) <= AT_LEVEL * level[:, None]


def has_diverged(loss: NDArray[np.float64], zero_level: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(L, P) bool, where losses (L, P) are not finite, or far above the zero predictor's (L,) and above their start."""
    return ~np.isfinite(loss) | ((loss > DIVERGED_FACTOR * zero_level[:, None]) & (loss > loss[:, :1]))


def is_moving(steps: NDArray[np.int64], loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(L, P) bool, where losses (L, P) fell by over `MOVING_SHARE` in the last fifth of the steps (P,) so far."""
    before = np.searchsorted(steps, [tail_start(int(step)) for step in steps], side="right") - 1
    return loss < (1.0 - MOVING_SHARE) * loss[:, before]


def is_overfit(evidence: Evidence) -> NDArray[np.bool_]:
    """(L, P) bool, where the held-out loss is `OVERFIT_SHARE` above its minimum, and the training loss below its value
    at that minimum."""
    eval_loss, train_loss = evidence.metrics["eval_loss"], evidence.metrics["loss"]
    least = np.fmin.accumulate(eval_loss, axis=1)
    at_least = np.maximum.accumulate(np.where(eval_loss == least, np.arange(eval_loss.shape[1]), 0), axis=1)
    then = np.take_along_axis(train_loss, at_least, axis=1)
    risen: NDArray[np.bool_] = eval_loss > (1.0 + OVERFIT_SHARE) * least
    return risen & (train_loss < then)


def judge_by_levels(
    evidence: Evidence,
    stuck: Mapping[str, str],
    before_levels: Mapping[str | tuple[str, str], NDArray[np.bool_]] = MappingProxyType({}),
) -> Verdicts:
    """Labels each training at each probe by its `eval_loss` alone: a workload's `judge` in one line.

    The first that holds: `diverged`; `solved`, below the level `solved`; an outcome of `before_levels`; the outcome of
    a level at which the loss stands, with the level's name as its detail; `plateau`, with the detail `moving` while the
    loss still falls.

    Args:
        evidence: The measurements. Their levels are `solved`, `zero` and those of `stuck`.
        stuck: The outcome at each level, such as `{"context": "marginal", "zero": "degenerate_zero"}`, in order of
            precedence where levels lie close together.
        before_levels: Where further outcomes hold, (L, P), such as `{"overfit": is_overfit(evidence)}`.
    """
    loss, levels = evidence.metrics["eval_loss"], evidence.levels
    return Verdicts.first_of(
        {
            "diverged": has_diverged(loss, levels["zero"]),
            "solved": loss < levels["solved"][:, None],
            **before_levels,
            **{(outcome, name): at_level(loss, levels[name]) for name, outcome in stuck.items()},
            ("plateau", "moving"): is_moving(evidence.steps, loss),
        }
    )


def onset_probe(outcome: NDArray[np.str_], last_probe: NDArray[np.int64]) -> NDArray[np.int64]:
    """(L,) the first probe from which each training's last outcome held.

    Args:
        outcome: (L, P) names.
        last_probe: (L,) index of the last probe that each training reached.
    """
    probes = np.arange(outcome.shape[1])
    final = np.take_along_axis(outcome, last_probe[:, None], axis=1)
    other = (outcome != final) & (probes < last_probe[:, None])
    return np.asarray(np.where(other, probes + 1, 0).max(axis=1), dtype=np.int64)
