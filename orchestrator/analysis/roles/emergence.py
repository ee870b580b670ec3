"""When roles emerge: the share of trainings in which a role has come to stay, by step. Axes: R training, T time.

Trainings may have different lengths, and one that ends without the role says only that it did not come by then: the
share is Kaplan and Meier's estimate, censored at the last probe. It is biased where lengths differ: docs/roles.md.
Its variance is Greenwood's, in the form that sums
over trials what their trainings contribute, so that replicates of one trial are not taken as independent. The interval
is Wilson's at the number of trainings that gives this variance, within the bounds of `intervals`: where no training is
censored before a step, share and interval there are those of `pooled_rate`; where each trial has one training, the
variance is Greenwood's own. Under `Sequential` replication trainings weigh so that each trial counts once, in the share
as in both variances: without censoring share and interval are those of `mean_rate`.

Source: Kaplan & Meier 1958; Williams 1995, Biometrics 51 (Greenwood's variance of clustered times); Cutler & Ederer
1958 (effective sample size of a survival rate).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.intervals import spread_of_estimate, weights_of_equal_trials, wilson
from attnsweep.orchestrator.analysis.rates import trials_count_once
from attnsweep.orchestrator.analysis.roles.history import RoleHistory, role_histories
from attnsweep.search_spaces.confidence_sequence import sequential_interval
from attnsweep.search_spaces.sweep import Sweep

_MOST_POINTS = 64
"""Of a curve."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The share of trainings in which the role has emerged by a step, with its 95% interval."""

    step: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RoleEmergence:
    """When one role emerges in one layer.

    Attributes:
        layer: Its number; `None` for any layer.
        role: As labelled.
        n_trainings, n_emerged: Trainings that count, and those in which it emerged.
        median_step: Of the step of emergence among those in which it emerged; `None` where there are none. Between
            two probes nothing is known: the step is that of the first probe which shows the role.
        median_share: The same of that step over the steps that the training took.
        curve: The share of trainings by step, from step 0 to the last probe of all; up to 64 points.
    """

    layer: int | None
    role: str
    n_trainings: int
    n_emerged: int
    median_step: float | None
    median_share: float | None
    curve: tuple[CurvePoint, ...]


def role_emergence(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, *, any_layer: bool = False
) -> tuple[RoleEmergence, ...]:
    """When each role that occurs in the sweep, or could, emerges, layer by layer.

    A role has emerged in a training at the first probe from which some head of the layer has it at every later probe.
    Failed and diverged trainings, and those without heads, are left out. Under `Sequential` each trial counts once in
    the curve.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        any_layer: Take the heads of all layers together.
    """
    return emergence_of(role_histories(connection, any_layer=any_layer), spec)


def emergence_of(histories: Sequence[RoleHistory], spec: Sweep) -> tuple[RoleEmergence, ...]:
    """`role_emergence` of histories that were read before."""
    return tuple(_emergence(each, once_per_trial=trials_count_once(spec)) for each in histories)


def _emergence(history: RoleHistory, *, once_per_trial: bool) -> RoleEmergence:
    steps = history.step[history.emerged]
    share = steps / np.maximum(history.n_steps[history.emerged], 1)
    return RoleEmergence(
        history.layer,
        history.role,
        len(history.step),
        len(steps),
        float(np.median(steps)) if len(steps) else None,
        float(np.median(share)) if len(steps) else None,
        emergence_curve(history.step, history.emerged, history.trial, once_per_trial=once_per_trial),
    )


def emergence_curve(
    step: NDArray[np.int64], emerged: NDArray[np.bool_], trial: NDArray[np.int64], *, once_per_trial: bool = False
) -> tuple[CurvePoint, ...]:
    """The Kaplan-Meier estimate of the share that has emerged, by step.

    Args:
        step: (R,) of emergence, or of censoring.
        emerged: (R,) false is censored.
        trial: (R,) the training's trial.
        once_per_trial: Trainings weigh so that each trial counts once, whatever its number of them.
    """
    times_T = np.union1d(step, [0])
    place_R, n_times = np.searchsorted(times_T, step), len(times_T)
    weight_R = weights_of_equal_trials(trial) if once_per_trial else np.ones(len(step))
    leaving_T = np.bincount(place_R, weight_R, minlength=n_times)
    came_T = np.bincount(place_R, weight_R * emerged, minlength=n_times)
    at_risk_T = leaving_T[::-1].cumsum()[::-1]
    without_T = np.cumprod(1.0 - came_T / at_risk_T)
    still_T = np.where(at_risk_T > came_T, at_risk_T - came_T, 1.0)
    hazard_T = np.cumsum(came_T / (at_risk_T * still_T))
    trials, trial_R = np.unique(trial, return_inverse=True)
    interval = _sequential if once_per_trial and len(trials) == 1 else wilson
    points = []
    for at in np.unique(np.linspace(0, n_times - 1, _MOST_POINTS).round().astype(int)).tolist():
        # What one more training of this kind would do to log(without): the linear part.
        pull_R = hazard_T[np.minimum(place_R, at)] - np.where(emerged & (place_R <= at), 1.0 / still_T[place_R], 0.0)
        spread = without_T[at] ** 2 * (weight_R * np.square(pull_R)).sum()
        spread_of_trials = without_T[at] ** 2 * np.square(np.bincount(trial_R, weight_R * pull_R)).sum()
        n_informed = at_risk_T[at] if without_T[at] == 1.0 else (weight_R * emerged).sum()
        n = _effective_n(1.0 - without_T[at], spread, spread_of_trials, n_informed, len(step), len(trials))
        low, high = interval(1.0 - without_T[at], n)
        points.append(CurvePoint(int(times_T[at]), float(1.0 - without_T[at]), low, high))
    return tuple(points)


def _sequential(share: float, n: float) -> tuple[float, float]:
    """`wilson`'s like for a single trial that was stopped by what it showed."""
    return sequential_interval(share * n, n)


def _effective_n(
    share: float, spread: float, spread_of_trials: float, n_informed: int, n_trainings: int, n_trials: int
) -> float:
    """Independent trainings that would tell as much; at least one a trial, but for what censoring takes away.

    Args:
        share: The estimate.
        spread: Greenwood's variance.
        spread_of_trials: The same with the trainings of a trial summed first.
        n_informed: Trainings that tell where the share is 0 or 1 and has no variance.
        n_trainings, n_trials: All of them.
    """
    binomial = share * (1.0 - share)
    if n_trials == 1 or spread == 0:
        alone = binomial / spread if spread else float(n_informed)
        return alone if n_trials == 1 else alone * n_trials / n_trainings
    alone = binomial / spread
    design_effect = max(spread_of_trials * n_trials / (n_trials - 1) / spread, 1.0)
    together = alone / design_effect * spread_of_estimate(n_trials)
    return float(np.clip(together, alone * n_trials / n_trainings, alone))
