"""The measures and thresholds by which all workloads label outcomes. Axes: L training, P probe, K level.

A share of a loss or level is one of its absolute value: a loss may be negative. The thresholds are our choices;
docs/notes/2026-11-21-theory.md shows how much those of category pairs matter.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.schedule import tail_start
from attnsweep.workloads.vocabulary import AT_LEVEL as AT_LEVEL
from attnsweep.workloads.vocabulary import MOVING_SHARE

Label: TypeAlias = tuple[str, str]
OR = " or "
"""Between the names of levels that a loss does not tell apart."""
STATIONARY_GAMMA = 1e-2
"""A training is stationary if its relative gradient (`gamma`) is below this."""
DIVERGED_FACTOR = 3.0
"""A loss has diverged above its first value and this multiple of the output 0's loss z (z + 2 |z| if z is negative)."""
OVERFIT_SHARE = 0.05
"""Overfit: the held-out loss has risen by this share above its minimum while the training loss kept falling."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The measurements of several trainings, NaN where one had ended or a value was not finite.

    Attributes:
        steps: (P,), those of the probes.
        metrics: (L, P) by name: `loss`, `eval_loss`, `grad_norm`, `param_norm`, and the workload's own metrics.
        levels: (L,) by name.
    """

    steps: NDArray[np.int64]
    metrics: dict[str, NDArray[np.float64]]
    levels: dict[str, NDArray[np.float64]]


def gamma(evidence: Evidence) -> NDArray[np.float64]:
    """The relative gradient |gradient| |weights| / |loss|, which does not depend on units of weights and loss."""
    loss = np.abs(evidence.metrics["eval_loss"])
    with np.errstate(divide="ignore", invalid="ignore"):
        return evidence.metrics["grad_norm"] * evidence.metrics["param_norm"] / loss


def at_level(loss: NDArray[np.float64], level: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where a loss, (L, P), differs from its training's `level` by at most the share `AT_LEVEL`."""
    return np.abs(loss - level[:, None]) <= AT_LEVEL * np.abs(level[:, None])


def standing(
    loss: NDArray[np.float64],
    levels: Mapping[str, NDArray[np.float64]],
    outcomes: Mapping[str, str],
    where: Mapping[str, NDArray[np.bool_]] = MappingProxyType({}),
) -> dict[Label, NDArray[np.bool_]]:
    """Where losses, (L, P), are at a reference level: by label, which is an outcome and the level's name.

    A loss is at the nearest level if they differ by at most the share `AT_LEVEL`. Levels nearer to each other than
    twice this it does not tell apart: the detail names all, such as `zero or mean`, in the order of `outcomes`.

    Args:
        levels: (L,) by name; NaN where a training has no such level.
        outcomes: The outcome at each level, by name. `levels` may lack some of them. Of equal levels the first counts.
        where: Further conditions, (L, P) by level.
    """
    names = [name for name in outcomes if name in levels]
    level_LK = np.stack([levels[name] for name in names], axis=-1)
    distance_LPK = np.abs(loss[:, :, None] - level_LK[:, None])
    nearest_LP = np.where(np.isnan(distance_LPK), np.inf, distance_LPK).argmin(axis=-1)
    size_LK = np.abs(level_LK)
    tolerance_LKK = 2.0 * AT_LEVEL * np.maximum(size_LK[:, :, None], size_LK[:, None])
    alike_LKK = (np.abs(level_LK[:, :, None] - level_LK[:, None]) <= tolerance_LKK) | np.eye(len(names), dtype=np.bool_)
    places: dict[Label, NDArray[np.bool_]] = {}
    for k, name in enumerate(names):
        holds_LP = (nearest_LP == k) & at_level(loss, level_LK[:, k]) & where.get(name, True)
        # Which levels nearly equal this one, as a number with one bit for each: NumPy finds equal numbers ten times as
        # fast as equal rows.
        set_L = alike_LKK[:, k] @ (1 << np.arange(len(names)))
        for number, lane in zip(*np.unique(set_L, return_index=True), strict=True):
            in_set_L = set_L == number
            label = outcomes[name], OR.join(itertools.compress(names, alike_LKK[lane, k]))
            places[label] = places.get(label, False) | (holds_LP & in_set_L[:, None])
    return places


def has_diverged(loss: NDArray[np.float64], zero_level: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where losses, (L, P), are not finite, or above both their start and `DIVERGED_FACTOR` times the loss of the
    output 0, (L,)."""
    return ~np.isfinite(loss) | ((loss > _raised(zero_level[:, None], DIVERGED_FACTOR - 1.0)) & (loss > loss[:, :1]))


def is_moving(steps: NDArray[np.int64], loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where losses, (L, P), fell by over `MOVING_SHARE` in the last fifth of the steps so far."""
    before = np.searchsorted(steps, [tail_start(int(step)) for step in steps], side="right") - 1
    return loss < _raised(loss[:, before], -MOVING_SHARE)


def is_overfit(evidence: Evidence) -> NDArray[np.bool_]:
    """Where the held-out loss is `OVERFIT_SHARE` above its minimum so far, and the training loss lower than there."""
    eval_loss, train_loss = evidence.metrics["eval_loss"], evidence.metrics["loss"]
    minimum = np.fmin.accumulate(eval_loss, axis=1)
    probe_of_minimum = np.maximum.accumulate(np.where(eval_loss == minimum, np.arange(eval_loss.shape[1]), 0), axis=1)
    train_loss_at_minimum = np.take_along_axis(train_loss, probe_of_minimum, axis=1)
    risen: NDArray[np.bool_] = eval_loss > _raised(minimum, OVERFIT_SHARE)
    return risen & (train_loss < train_loss_at_minimum)


def onset_probe(outcome: NDArray[np.str_], last_probe: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each training the first probe from which on its outcome, (L, P), no longer changed."""
    probes = np.arange(outcome.shape[1])
    final = np.take_along_axis(outcome, last_probe[:, None], axis=1)
    has_other_outcome = (outcome != final) & (probes < last_probe[:, None])
    return np.asarray(np.where(has_other_outcome, probes + 1, 0).max(axis=1), dtype=np.int64)


def _raised(loss: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    return np.asarray((1.0 + share * np.sign(loss)) * loss)
