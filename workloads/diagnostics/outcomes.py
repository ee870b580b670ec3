"""The measures and thresholds by which all workloads decide outcomes. Axes: L lane, P probe.

Shares of a loss or level are shares of its size, |loss|: a loss may be negative.

The thresholds are ours; docs/zeros.md shows how much each of them matters.
"""

import itertools
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Evidence, Label, Verdicts
from attnsweep.workloads.engine.schedule import tail_start
from attnsweep.workloads.vocabulary import AT_LEVEL as AT_LEVEL
from attnsweep.workloads.vocabulary import MOVING_SHARE

OR = " or "
"""Between the names of reference levels that the loss alone does not tell apart."""
STATIONARY_GAMMA = 1e-2
"""A training is stationary if its scale-free gradient is below this."""
DIVERGED_FACTOR = 3.0
"""A loss above this multiple of the zero predictor's, and above its own start, has diverged; where the zero predictor's
is negative, a loss as far above it in units of its size."""
OVERFIT_SHARE = 0.05
"""A training on a finite text is overfit if its held-out loss has risen by this share above its minimum while its
training loss kept falling."""


def gamma(evidence: Evidence) -> NDArray[np.float64]:
    """The scale-free gradient |grad| |theta| / |loss|, (L, P)."""
    loss = np.abs(evidence.metrics["eval_loss"])
    with np.errstate(divide="ignore", invalid="ignore"):
        return evidence.metrics["grad_norm"] * evidence.metrics["param_norm"] / loss


def at_level(loss: NDArray[np.float64], level: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(L, P) bool, where losses (L, P) are within `AT_LEVEL` of a level (L,)."""
    return np.abs(loss - level[:, None]) <= AT_LEVEL * np.abs(level[:, None])


def standing(
    loss: NDArray[np.float64],
    levels: Mapping[str, NDArray[np.float64]],
    outcomes: Mapping[str, str],
    where: Mapping[str, NDArray[np.bool_]] = MappingProxyType({}),
) -> dict[Label, NDArray[np.bool_]]:
    """At which of some reference levels each loss stands: at the nearest one, if that is within `AT_LEVEL`.

    The loss alone does not tell levels apart that are nearer to each other than twice `AT_LEVEL`. The detail says so.

    Args:
        loss: (L, P).
        levels: (L,) by name; NaN where a training has no such level.
        outcomes: The outcome at each of these levels; `levels` may lack some. Of equal levels the first counts.
        where: What must hold besides, (L, P), at some of these levels.

    Returns:
        (L, P) by the outcome of the nearest level and the detail: its name, or the names of all that the loss does not
        tell it from, such as `zero or mean`, in the order of `outcomes`.
    """
    names = [name for name in outcomes if name in levels]
    level_LK = np.stack([levels[name] for name in names], axis=-1)
    off_LPK = np.abs(loss[:, :, None] - level_LK[:, None])
    nearest_LP = np.where(np.isnan(off_LPK), np.inf, off_LPK).argmin(axis=-1)
    size_LK = np.abs(level_LK)
    most_LKK = 2.0 * AT_LEVEL * np.maximum(size_LK[:, :, None], size_LK[:, None])
    alike_LKK = (np.abs(level_LK[:, :, None] - level_LK[:, None]) <= most_LKK) | np.eye(len(names), dtype=np.bool_)
    stands: dict[Label, NDArray[np.bool_]] = {}
    for k, name in enumerate(names):
        holds_LP = (nearest_LP == k) & at_level(loss, level_LK[:, k]) & where.get(name, True)
        # A number for each set of levels: equal rows of an array take NumPy ten times as long to find.
        set_L = alike_LKK[:, k] @ (1 << np.arange(len(names)))
        for number, lane in zip(*np.unique(set_L, return_index=True), strict=True):
            of_lanes_L = set_L == number
            label = outcomes[name], OR.join(itertools.compress(names, alike_LKK[lane, k]))
            stands[label] = stands.get(label, False) | (holds_LP & of_lanes_L[:, None])
    return stands


def has_diverged(loss: NDArray[np.float64], zero_level: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(L, P) bool, where losses (L, P) are not finite, or far above the zero predictor's (L,) and above their start."""
    return ~np.isfinite(loss) | ((loss > _raised(zero_level[:, None], DIVERGED_FACTOR - 1.0)) & (loss > loss[:, :1]))


def is_moving(steps: NDArray[np.int64], loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(L, P) bool, where losses (L, P) fell by over `MOVING_SHARE` in the last fifth of the steps (P,) so far."""
    before = np.searchsorted(steps, [tail_start(int(step)) for step in steps], side="right") - 1
    return loss < _raised(loss[:, before], -MOVING_SHARE)


def is_overfit(evidence: Evidence) -> NDArray[np.bool_]:
    """(L, P) bool, where the held-out loss is `OVERFIT_SHARE` above its minimum, and the training loss below its value
    at that minimum."""
    eval_loss, train_loss = evidence.metrics["eval_loss"], evidence.metrics["loss"]
    least = np.fmin.accumulate(eval_loss, axis=1)
    at_least = np.maximum.accumulate(np.where(eval_loss == least, np.arange(eval_loss.shape[1]), 0), axis=1)
    then = np.take_along_axis(train_loss, at_least, axis=1)
    risen: NDArray[np.bool_] = eval_loss > _raised(least, OVERFIT_SHARE)
    return risen & (train_loss < then)


def judge_by_levels(
    evidence: Evidence,
    stuck: Mapping[str, str],
    before_levels: Mapping[str | tuple[str, str], NDArray[np.bool_]] = MappingProxyType({}),
) -> Verdicts:
    """Labels each training at each probe by its `eval_loss` alone: a workload's `judge` in one line.

    The first that holds: `diverged`; `solved`, below the level `solved`; an outcome of `before_levels`; the outcome of
    the level at which the loss stands, with the detail of `standing`; `plateau`, with the detail `moving` while the
    loss still falls.

    Args:
        evidence: The measurements. Their levels are `solved`, `zero` and those of `stuck`.
        stuck: The outcome at each level, such as `{"context": "marginal", "zero": "degenerate_zero"}`; of equal levels
            the first counts.
        before_levels: Where further outcomes hold, (L, P), such as `{"overfit": is_overfit(evidence)}`.
    """
    loss, levels = evidence.metrics["eval_loss"], evidence.levels
    return Verdicts.first_of(
        {
            "diverged": has_diverged(loss, levels["zero"]),
            "solved": loss < levels["solved"][:, None],
            **before_levels,
            **standing(loss, levels, stuck),
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


def _raised(loss: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Losses plus a share of their size; for positive ones (1 + share) loss, to the last bit."""
    return np.asarray((1.0 + share * np.sign(loss)) * loss)
