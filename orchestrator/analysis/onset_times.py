"""The steps at which trainings reach an outcome, an event or a level of the loss ("the goal"): read from a ledger, and
summarized as a curve.

The curve is the share of trainings that have reached the goal, by step: the Kaplan-Meier estimate. Trainings may have
different lengths. A training that ends without the goal is censored at its last step. The variance is Greenwood's,
summed by trial, so that replicates of one trial are not taken as independent. The interval is that of a rate in
`rates.intervals`, for the number of independent trainings that would give this variance:

- Up to the first censored training, the share and interval are those of `pooled_rate`.
- If each trial has one training, the variance is Greenwood's own.
- Under `Sequential` replication, where the number of a trial's trainings depends on how they end, trainings have
  weights such that each trial counts once, in the share and in both variances; without censoring, the share and
  interval are those of `mean_rate`.

Axes: R training, T time.
Source: Kaplan & Meier 1958; Williams 1995, Biometrics 51 (Greenwood's variance of clustered times); Cutler & Ederer
1958 (effective sample size of a survival rate).
"""

from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.rates.intervals import rate_interval, spread_of_estimate, weights_of_trainings
from attnsweep.orchestrator.ledger.views import IS_JUDGED, identifier, literal
from attnsweep.search_spaces.confidence_sequence import sequential_interval
from attnsweep.workloads.vocabulary import AT_LEVEL

_MOST_POINTS = 64
"""The most points of a curve of the share that has reached the goal, by step."""
_ROUNDING = 1e-9
"""The relative rounding error that a comparison of shares tolerates."""
_TIMES = """
select trial, {came} as came, greatest(coalesce({reached}, n_steps) - {start}, 0) as step,
    param_n_steps - {start} as most, diverged_step is not null or n_steps < param_n_steps or outcome = 'solved' as ended
from {trainings} where {judged} and {start} is not null order by trial, replicate
"""
_WITH_LEVELS = """
trainings left join (
    select trial, replicate, min(step) as step
    from curves join (select trial, replicate, {level} as level from trainings) using (trial, replicate)
    where metric = 'eval_loss' and value < level - {share} * abs(level) group by all
) below using (trial, replicate)
"""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of a curve over the steps: the share of trainings that have reached a goal, such as an outcome, by this
    step, with the share's 95% interval."""

    step: int
    share: float
    low: float
    high: float


def share_by_step(
    step: NDArray[np.int64], came: NDArray[np.bool_], trial: NDArray[np.int64], *, once_per_trial: bool = False
) -> tuple[CurvePoint, ...]:
    """Computes the share of trainings that have reached a goal, such as an outcome, at up to 64 steps from 0 to the
    last step of any training: the Kaplan-Meier estimate.

    Without trainings there are no points. The first arguments are those of `OnsetTimes`.
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
        # Every training has a weight in the estimate `without_T` of the share of trainings that have not reached the
        # goal. `pull_R` tells how strongly each training affects the estimate at one time: it is the derivative of the
        # estimate's logarithm with respect to the training's weight.
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
    """Returns how many independent trainings would estimate the given share as precisely as the trainings that were
    made, which are not independent within a trial. Also returns a lower bound of this number.

    The bound is one training per trial, or less where trainings are censored.

    Args:
        spread, spread_of_trials: Greenwood's variance, and the same variance with the terms of a trial's trainings
            summed first.
        n_informed: The number of trainings to use if the share is 0 or 1, where the variance is 0.
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
    """For each of several trainings, the step at which it reached the goal (an outcome, a role or an event), or the
    step up to which it is known not to have reached the goal (censored).

    Attributes:
        trial, step: (R,) the training's trial, and the step.
        came: (R,) whether the training reached the goal at the step; false means censored.
    """

    trial: NDArray[np.int64]
    step: NDArray[np.int64]
    came: NDArray[np.bool_]

    def where(self, inside: NDArray[np.bool_]) -> "OnsetTimes":
        """Selects the trainings for which `inside`, a mask with one entry per training, is true."""
        return OnsetTimes(self.trial[inside], self.step[inside], self.came[inside])

    @property
    def n_came(self) -> int:
        """The number of trainings that reached the goal, such as an outcome."""
        return int(self.came.sum())

    @property
    def median_step(self) -> int | None:
        """The step by which half of the trainings that ever reach the goal (an outcome, a role or an event) have
        reached it; `None` if no training does.

        Only steps of the sweep count. Like the curve, it takes into account that censored trainings might have reached
        the goal later.
        """
        times_T, came_T = np.unique(self.step[self.came], return_counts=True)
        if len(times_T) == 0:
            return None
        at_risk_T = len(self.step) - np.searchsorted(np.sort(self.step), times_T)
        share_T = 1.0 - np.cumprod(1.0 - came_T / at_risk_T)
        return int(times_T[np.argmax(share_T >= share_T[-1] / 2 * (1 - _ROUNDING))])

    def curve(self, *, once_per_trial: bool) -> tuple[CurvePoint, ...]:
        """The Kaplan-Meier estimate of the share of trainings that have reached the goal, by step, with intervals."""
        return share_by_step(self.step, self.came, self.trial, once_per_trial=once_per_trial)


def outcome_onsets(connection: duckdb.DuckDBPyConnection, outcome: str) -> OnsetTimes:
    """Reads for each training the step from which on it had the given outcome, or the step up to which it did not have
    it. Failed and pruned trainings are left out.

    A training with another outcome is censored at its last step, because it might have reached this outcome later. But
    a training that ended for good (solved, diverged or converged) can never change its outcome. If that is another
    outcome, the training counts as not having reached this one up to the last step of all trainings. The curve is
    therefore the cumulative incidence, and if all budgets are equal it ends at the outcome's rate. Censoring these
    trainings too would instead estimate the share if no other outcome existed.
    """
    came = f"outcome = {literal(outcome)}"
    return _read_times(connection, came, f"case when {came} then onset_step end")


def event_names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Lists the events, such as the first right answer, for which the table of trainings has a column, in the
    workload's order."""
    return _names_after(connection, "event_")


def event_times(connection: duckdb.DuckDBPyConnection, event: str, after: str | None = None) -> OnsetTimes:
    """Reads for each training the step at which an event (one of `event_names`) first held, or the step up to which the
    event did not hold. Failed and pruned trainings are left out.

    Which trainings are censored is as in `outcome_onsets`.

    Args:
        after: Another event. If it is given, steps count from the step at which this other event first held, and
            trainings in which it never held are left out. If `event` held before it, or at the same probe, the step is
            0.
    """
    column, start = identifier(f"event_{event}"), "0" if after is None else identifier(f"event_{after}")
    return _read_times(connection, f"{column} is not null", column, start=start)


def level_names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Lists the names of a ledger's reference levels (the losses of simple predictors), in the workload's order."""
    return _names_after(connection, "level_")


def level_times(connection: duckdb.DuckDBPyConnection, level: str) -> OnsetTimes:
    """Finds for each training the first measured step at which `eval_loss` is more than 1% below a reference level (one
    of `level_names`). If there is none, finds the step up to which it is known that there was none. Failed and pruned
    trainings are left out.

    Which trainings are censored is as in `outcome_onsets`.
    """
    trainings = _WITH_LEVELS.format(level=identifier(f"level_{level}"), share=AT_LEVEL)
    return _read_times(connection, "below.step is not null", "below.step", trainings=trainings)


def _names_after(connection: duckdb.DuckDBPyConnection, prefix: str) -> list[str]:
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    return [name.removeprefix(prefix) for name in columns if name.startswith(prefix)]


def _read_times(
    connection: duckdb.DuckDBPyConnection, came: str, reached: str, *, start: str = "0", trainings: str = "trainings"
) -> OnsetTimes:
    """Reads for each training in a ledger at which step it reached an outcome, a role or an event, or up to which step
    it did not. Failed and pruned trainings are left out.

    A training that ended for good without reaching it counts as not having reached it up to the last step of all
    trainings. `came`, `reached` and `start` are SQL expressions: whether a training reached the goal, at which step,
    and where steps count from.
    """
    query = _TIMES.format(came=came, reached=reached, start=start, trainings=trainings, judged=IS_JUDGED)
    rows = connection.execute(query).fetchnumpy()
    came_R, ended_R = (np.asarray(rows[name], np.bool_) for name in ("came", "ended"))
    trial_R, step_R, most_R = (np.asarray(rows[name], np.int64) for name in ("trial", "step", "most"))
    last = max(int(step_R.max(initial=0)), int(most_R.max(initial=0)))
    return OnsetTimes(trial_R, np.where(ended_R & ~came_R, last, step_R), came_R)
