"""How much of the outcome of trainings is already decided at a step: 0 if the weights at this step say nothing about
the outcome, 1 if they determine it.

A training's committor q is the chance that it ends with the outcome, given its state at the step. Over the trainings of
one configuration the mean of q is p, the outcome's rate. If the state decides nothing, every q is p; if it decides
everything, every q is 0 or 1. The share decided is Var(q) / (p (1 - p)), the correlation between the outcomes of two
continuations of one training.

To estimate this share, each of R trainings is continued n times from the step, and k of its continuations have the
outcome. The estimate is 1 - mean(u) / (p (1 - p)), where u = k (n - k) / (n (n - 1)) estimates a training's q (1 - q)
without bias. This is the estimator of Fleiss & Cuzick, for which n may differ between trainings.

The interval is Rubin's bootstrap, which gives the trainings random weights. If few trainings all look decided, or all
look open, it would have no width. So one training is added to the sample for each bound: one that is as open as
possible for the lower bound, a decided one for the upper bound.

Source: Fleiss & Cuzick 1979, Applied Psychological Measurement 3; Rubin 1981, Annals of Statistics 9.
Axes: D draw of weights, R training.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import Record

_N_DRAWS = 4_000
_TAILS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Decided(Record):
    """How far the state of trainings at one step decides whether they end with an outcome: from 0 (not at all) to 1
    (entirely), with a 95% interval."""

    share: float | None
    low: float
    high: float

    @property
    def label(self) -> str:
        """How far the state decides the outcome, with the interval: `0.52 [0.23, 0.81]`, or `-` without an estimate."""
        return "-" if self.share is None else f"{self.share:.2f} [{self.low:.2f}, {self.high:.2f}]"


def share_decided(k: Sequence[int], n: Sequence[int]) -> Decided:
    """Estimates how far the states of trainings at a step decide an outcome: each training is continued several times
    from the step.

    Args:
        k: (R,) the number of each training's continuations that have the outcome.
        n: (R,) the number of each training's continuations, at least 2.
    """
    k_R, n_R = np.asarray(k, np.float64), np.asarray(n, np.float64)
    assert len(k_R) > 1
    assert n_R.min() > 1
    q_R, open_R = k_R / n_R, k_R * (n_R - k_R) / (n_R * (n_R - 1))
    if q_R.mean() in (0, 1):
        return Decided(None, 0.0, 1.0)
    most = 0.25 * n_R.mean() / (n_R.mean() - 1)
    added = (0.5, most), (float(q_R.mean() < 0.5), 0.0)
    low, high = (
        np.quantile(_drawn(np.append(q_R, q), np.append(open_R, is_open)), tail)
        for (q, is_open), tail in zip(added, _TAILS, strict=True)
    )
    share = 1 - open_R.mean() / (q_R.mean() * (1 - q_R.mean()))
    return Decided(*(float(np.clip(value, 0, 1)) for value in (share, low, high)))


def _drawn(q_R: NDArray[np.float64], open_R: NDArray[np.float64]) -> NDArray[np.float64]:
    weights_DR = np.random.default_rng(0).standard_exponential((_N_DRAWS, len(q_R)))
    weights_DR /= weights_DR.sum(axis=1, keepdims=True)
    p_D = weights_DR @ q_R
    return np.asarray(1 - weights_DR @ open_R / (p_D * (1 - p_D)))
