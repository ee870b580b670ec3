"""The share of trainings that have reached an event, by step: the Kaplan-Meier estimate. Axes: R training, T time.

Trainings may have different lengths. A training that ends without the event is censored at its last step. The variance
is Greenwood's, summed by trial, so that replicates of one trial are not taken as independent. The interval is that of a
rate in `rates.intervals`, for the number of trainings that would give this variance:

- Up to the first censored training, the share and interval are those of `pooled_rate`.
- If each trial has one training, the variance is Greenwood's own.
- Under `Sequential` replication trainings have weights such that each trial counts once, in the share and in both
  variances; without censoring, the share and interval are those of `mean_rate`.

Source: Kaplan & Meier 1958; Williams 1995, Biometrics 51 (Greenwood's variance of clustered times); Cutler & Ederer
1958 (effective sample size of a survival rate).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.rates.intervals import (
    rate_interval,
    spread_of_estimate,
    weights_of_trainings,
)
from attnsweep.search_spaces.confidence_sequence import sequential_interval

_MOST_POINTS = 64
"""The most points of a curve."""
_ROUNDING = 1e-9
"""The relative rounding error that a comparison of shares tolerates."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The share of trainings that have reached the goal by one step, with its 95% interval."""

    step: int
    share: float
    low: float
    high: float


def share_by_step(
    step: NDArray[np.int64], came: NDArray[np.bool_], trial: NDArray[np.int64], *, once_per_trial: bool = False
) -> tuple[CurvePoint, ...]:
    """Computes the Kaplan-Meier estimate of the share that has reached the goal, at up to 64 steps from 0 to the last
    step of any training.

    Args:
        step: (R,) the step at which the training reached the event, or was censored.
        came: (R,) whether the training reached the event; false means censored.
        trial: (R,) the training's trial.

    Returns:
        The points; none without trainings.
    """
    if len(step) == 0:
        return ()
    times_T = np.union1d(step, [0])
    place_R, n_times = np.searchsorted(times_T, step), len(times_T)
    weight_R = weights_of_trainings(trial, once_per_trial=once_per_trial)
    leaving_T = np.bincount(place_R, weight_R, minlength=n_times)
    came_T = np.bincount(place_R, weight_R * came, minlength=n_times)
    at_risk_T = leaving_T[::-1].cumsum()[::-1]
    without_T = np.cumprod(1.0 - came_T / at_risk_T)
    still_T = np.where(at_risk_T > came_T, at_risk_T - came_T, 1.0)
    hazard_T = np.cumsum(came_T / (at_risk_T * still_T))
    trials, trial_R = np.unique(trial, return_inverse=True)
    n_of_trial = np.bincount(trial_R)
    points = []
    for at in np.unique(np.linspace(0, n_times - 1, _MOST_POINTS).round().astype(int)).tolist():
        # `pull_R` is the influence of each training on log(without), the logarithm of the estimated share without the
        # goal.
        pull_R = hazard_T[np.minimum(place_R, at)] - np.where(came & (place_R <= at), 1.0 / still_T[place_R], 0.0)
        spread = without_T[at] ** 2 * (weight_R * np.square(pull_R)).sum()
        spread_of_trials = without_T[at] ** 2 * np.square(np.bincount(trial_R, weight_R * pull_R)).sum()
        n_informed = at_risk_T[at] if without_T[at] == 1.0 else (weight_R * came).sum()
        share = float(1.0 - without_T[at])
        n, n_once = _effective_n(share, spread, spread_of_trials, n_informed, len(step), len(trials))
        if once_per_trial and len(trials) == 1:
            low, high = sequential_interval(share * n, n)
        else:
            k_of_trial = np.bincount(trial_R, came & (place_R <= at))
            low, high = rate_interval(share, n, np.stack([n_of_trial, k_of_trial], axis=1), n_once)
        points.append(CurvePoint(int(times_T[at]), share, low, high))
    return tuple(points)


def _effective_n(
    share: float, spread: float, spread_of_trials: float, n_informed: int, n_trainings: int, n_trials: int
) -> tuple[float, float]:
    """Returns how many independent trainings would give an estimate of this variance, and a lower bound of that number.

    The least is one training per trial, reduced for censoring.

    Args:
        share: The estimate.
        spread: Greenwood's variance.
        spread_of_trials: Greenwood's variance with the trainings of a trial summed first.
        n_informed: The number of trainings to use if the share is 0 or 1, where the variance is 0.
        n_trainings, n_trials: The numbers of all trainings and trials.
    """
    binomial = share * (1.0 - share)
    if n_trials == 1 or spread == 0:
        alone = binomial / spread if spread else float(n_informed)
        once = alone * n_trials / n_trainings
        return (alone, alone) if n_trials == 1 else (once, once)
    alone = binomial / spread
    once = alone * n_trials / n_trainings
    design_effect = max(spread_of_trials * n_trials / (n_trials - 1) / spread, 1.0)
    together = alone / design_effect * spread_of_estimate(n_trials)
    return float(np.clip(together, once, alone)), once


@dataclass(frozen=True, eq=False, slots=True)
class OnsetTimes:
    """The step at which each training reached an outcome, a role or an event ("the goal"), or at which it was censored.

    Attributes:
        trial: (R,) the training's trial.
        step: (R,) the step at which the training reached the goal, or was censored.
        came: (R,) whether the training reached the goal; false means censored.
    """

    trial: NDArray[np.int64]
    step: NDArray[np.int64]
    came: NDArray[np.bool_]

    def where(self, inside: NDArray[np.bool_]) -> "OnsetTimes":
        """Selects the trainings for which the mask `inside` (R,) is true."""
        return OnsetTimes(self.trial[inside], self.step[inside], self.came[inside])

    @property
    def n_came(self) -> int:
        """The number of trainings that reached the goal."""
        return int(self.came.sum())

    @property
    def median_step(self) -> int | None:
        """The step by which half of those trainings that reach the goal have reached it; `None` if no training does.

        Only the steps of the sweep count. Like the curve, it takes into account that censored trainings might have
        reached the goal later.
        """
        times_T, came_T = np.unique(self.step[self.came], return_counts=True)
        if len(times_T) == 0:
            return None
        at_risk_T = len(self.step) - np.searchsorted(np.sort(self.step), times_T)
        share_T = 1.0 - np.cumprod(1.0 - came_T / at_risk_T)
        return int(times_T[np.argmax(share_T >= share_T[-1] / 2 * (1 - _ROUNDING))])

    def curve(self, *, once_per_trial: bool) -> tuple[CurvePoint, ...]:
        """The share of trainings that have reached the goal, by step."""
        return share_by_step(self.step, self.came, self.trial, once_per_trial=once_per_trial)
