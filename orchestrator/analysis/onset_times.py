"""The steps between which trainings reach an outcome, a role or an event ("the goal"): read from a ledger, and
summarized as a curve by step.

Trainings are measured at probes only, so a goal is reached after one probe and by the next (interval censoring). Two
curves enclose the share of trainings that have reached the goal by a step: the Kaplan-Meier estimates with every
training at the end of its interval, and with every training at its first possible step. The lower end of the band is
that of the first, the upper end that of the second. If all trainings have the same probes, the two curves are equal at
each probe, and together they are Turnbull's estimate, which does not say where between two probes the share rises.

Trainings may have different lengths. One that runs out of steps without the goal is censored at its last step; for one
that ended for good, see `outcome_onsets`, for roles `role_emergence`. The variance is Greenwood's, summed by trial, so
that replicates of one trial are not taken as independent. The interval is that of a rate in `rates.intervals`, for the
number of independent trainings that would give this variance:

- Up to the first censored training, the share and interval are those of `pooled_rate`.
- If each trial has one training, the variance is Greenwood's own.
- Under `Sequential` replication, where the number of a trial's trainings depends on how they end, trainings have
  weights such that each trial counts once, in the share and in both variances; without censoring, the share and
  interval are those of `mean_rate`.

Axes: R training, T time.
Source: Kaplan & Meier 1958; Turnbull 1976, JRSS B 38 (interval-censored times); Williams 1995, Biometrics 51
(Greenwood's variance of clustered times); Cutler & Ederer 1958 (effective sample size of a survival rate).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.rates.bins import Groups
from attnsweep.orchestrator.analysis.rates.intervals import few_trials_factor, rate_interval, weights_of_trainings
from attnsweep.orchestrator.analysis.tables import table_of
from attnsweep.orchestrator.ledger.views import IS_JUDGED, identifier, literal
from attnsweep.search_spaces.confidence_sequence import sequential_interval

_MAX_POINTS = 64
"""Of a curve."""
_HALF = 0.5
_ROUNDING = 1e-9
"""The relative rounding error that a comparison of shares tolerates."""
# With a start, the delay is at least from `start` to `before`, at most from the step after `before_start` to `step`.
_TIMES = """
select trial, {step} is not null as reached,
    greatest(coalesce({step} - 1 - coalesce({before_start}, -1), n_steps - {start}), 0) as step,
    greatest(coalesce({before}, -1) - {start}, -1) as before, param_n_steps - {start} as budget,
    diverged_step is not null or n_steps < param_n_steps or outcome = 'solved' as ended
from trainings where {judged} and {start} is not null order by trial, replicate
"""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The share of trainings that have reached the goal by a step, with its 95% interval.

    `share` counts the trainings that a probe has found to have reached it, `most` also those that may have reached it
    since their last probe.
    """

    step: int
    share: float
    most: float
    low: float
    high: float


_Estimate: TypeAlias = Callable[[int], tuple[float, float, float]]
"""The share with the ends of its interval, by the number of the time."""


def _kaplan_meier(
    step: NDArray[np.int64], reached: NDArray[np.bool_], trial: NDArray[np.int64], once_per_trial: bool
) -> tuple[NDArray[np.int64], _Estimate]:
    """The times at which the estimate may change, and the estimate."""
    times_T = np.union1d(step, [0])
    time_R, n_times = np.searchsorted(times_T, step), len(times_T)
    weight_R = weights_of_trainings(trial, once_per_trial=once_per_trial)
    leaving_T = np.bincount(time_R, weight_R, minlength=n_times)
    reaching_T = np.bincount(time_R, weight_R * reached, minlength=n_times)
    at_risk_T = leaving_T[::-1].cumsum()[::-1]
    surviving_T = np.cumprod(1.0 - reaching_T / at_risk_T)  # the share that has not reached the goal
    passing_T = np.where(at_risk_T > reaching_T, at_risk_T - reaching_T, 1.0)
    greenwood_T = np.cumsum(reaching_T / (at_risk_T * passing_T))
    trials, trial_R = np.unique(trial, return_inverse=True)
    n_of_trial = np.bincount(trial_R)

    def estimate(at: int) -> tuple[float, float, float]:
        has_reached_R = reached & (time_R <= at)
        # The derivative of log(surviving_T[at]) by each training's weight: how strongly it moves the estimate.
        influence_R = greenwood_T[np.minimum(time_R, at)] - np.where(has_reached_R, 1.0 / passing_T[time_R], 0.0)
        variance = surviving_T[at] ** 2 * (weight_R * np.square(influence_R)).sum()
        variance_by_trial = surviving_T[at] ** 2 * np.square(np.bincount(trial_R, weight_R * influence_R)).sum()
        n_informed = at_risk_T[at] if surviving_T[at] == 1.0 else (weight_R * reached).sum()
        share = float(1.0 - surviving_T[at])
        n, n_once_per_trial = _effective_n(share, variance, variance_by_trial, n_informed, len(step), len(trials))
        if once_per_trial and len(trials) == 1:
            return share, *sequential_interval(share * n, n)
        k_of_trial = np.bincount(trial_R, has_reached_R)
        return share, *rate_interval(share, n, np.stack([n_of_trial, k_of_trial], axis=1), n_once_per_trial)

    return times_T, lru_cache(estimate)


def _reaches_half(curve: tuple[NDArray[np.int64], _Estimate], part: int) -> int | None:
    """The first step at which the share (part 0), or an end of its interval (1, 2), is at least 1/2."""
    times_T, estimate = curve
    number = bisect_left(range(len(times_T)), True, key=lambda number: estimate(number)[part] >= _HALF)
    return int(times_T[number]) if number < len(times_T) else None


def _step_before(step: int | None) -> int | None:
    return step - 1 if step else None


def _effective_n(
    share: float, variance: float, variance_by_trial: float, n_informed: int, n_trainings: int, n_trials: int
) -> tuple[float, float]:
    """How many independent trainings would give this variance, and how many if a trial counted as one training.

    `variance` takes trainings as independent, `variance_by_trial` only trials. Without any variance, `n_informed`
    stands for the former number, and of several trials each counts once in both.
    """
    n_independent = share * (1.0 - share) / variance if variance else float(n_informed)
    n_once_per_trial = n_independent * n_trials / n_trainings
    if n_trials == 1:
        return n_independent, n_independent
    if variance == 0:
        return n_once_per_trial, n_once_per_trial
    design_effect = max(variance_by_trial * n_trials / (n_trials - 1) / variance, 1.0)
    n_effective = n_independent / design_effect * few_trials_factor(n_trials)
    return float(np.clip(n_effective, n_once_per_trial, n_independent)), n_once_per_trial


@dataclass(frozen=True, eq=False, slots=True)
class OnsetTimes:
    """For each training the steps between which it reached the goal, or up to which it had not (censored).

    Attributes:
        step: (R,) by which the training reached the goal, or up to which it had not.
        reached: (R,) whether it reached the goal by that step; false means censored.
        before: (R,) where `reached`, the last step at which it had not yet; -1 if it had from the start.
    """

    trial: NDArray[np.int64]
    step: NDArray[np.int64]
    reached: NDArray[np.bool_]
    before: NDArray[np.int64]

    def at(self, rows: NDArray[Any]) -> "OnsetTimes":
        """Of these trainings, given by their numbers or a mask."""
        return OnsetTimes(self.trial[rows], self.step[rows], self.reached[rows], self.before[rows])

    @property
    def n_came(self) -> int:
        return int(self.reached.sum())

    @property
    def median_step(self) -> int | None:
        """By this step half of the trainings that ever reach the goal have; `None` if none does."""
        return self._median(self.step)

    @property
    def median_before(self) -> int | None:
        """The last step by which fewer than half of these may have; `None` if half may have from the start."""
        return _step_before(self._median(self._first_possible))

    @property
    def _first_possible(self) -> NDArray[np.int64]:
        """The first step at which each may have reached the goal, or at which it is censored."""
        return np.where(self.reached, self.before + 1, self.step)

    def _median(self, step_R: NDArray[np.int64]) -> int | None:
        times_T, reaching_T = np.unique(step_R[self.reached], return_counts=True)
        if len(times_T) == 0:
            return None
        at_risk_T = len(step_R) - np.searchsorted(np.sort(step_R), times_T)
        share_T = 1.0 - np.cumprod(1.0 - reaching_T / at_risk_T)
        return int(times_T[np.argmax(share_T >= share_T[-1] / 2 * (1 - _ROUNDING))])

    def curve(self, *, once_per_trial: bool) -> tuple[CurvePoint, ...]:
        """The share at up to 64 steps from 0 to the last of any training."""
        if len(self.step) == 0:
            return ()
        ends_of_intervals = (self.step, self._first_possible)
        times_T = np.union1d(np.concatenate(ends_of_intervals), [0])
        points = times_T[np.unique(np.linspace(0, len(times_T) - 1, _MAX_POINTS).round().astype(int))]
        curves = []
        for step_R in ends_of_intervals:
            own_times_T, estimate = _kaplan_meier(step_R, self.reached, self.trial, once_per_trial)
            curves.append(list(map(estimate, (np.searchsorted(own_times_T, points, side="right") - 1).tolist())))
        return tuple(
            CurvePoint(int(time), late[0], soon[0], min(late[1], soon[1]), max(late[2], soon[2]))
            for time, late, soon in zip(points, *curves, strict=True)
        )

    def half(self, *, once_per_trial: bool) -> dict[str, int | None]:
        """Between which steps the curve reaches 1/2, and the ends of its band: columns of `NUMBERS`."""
        late, soon = (
            _kaplan_meier(step, self.reached, self.trial, once_per_trial) for step in (self.step, self._first_possible)
        )
        return {
            "half_before": _step_before(_reaches_half(soon, 0)),
            "half_step": _reaches_half(late, 0),
            "low": _step_before(_reaches_half(soon, 2)),
            "high": _reaches_half(late, 1),
        }


def outcome_onsets(connection: duckdb.DuckDBPyConnection, outcome: str) -> OnsetTimes:
    """The step from which on each training had the outcome, or up to which not. Failed and pruned ones are left out.

    A training with another outcome is censored at its last step, because it might have reached this one later. But if
    it ended for good (solved, diverged or converged), it counts as without this outcome up to the last step of all
    trainings. So the curve is the cumulative incidence, and if all budgets are equal it ends at the outcome's rate.
    """
    has = f"case when outcome = {literal(outcome)} then"
    return _read_times(connection, f"{has} before_onset_step end", f"{has} onset_step end")


def event_times(connection: duckdb.DuckDBPyConnection, event: str, after: str | None = None) -> OnsetTimes:
    """The steps between which the event first held in each training, or up to which it did not.

    With `after`, steps count from the step at which this other event first held, and trainings in which it never held
    are left out. A delay is known up to the steps between the probes at both events; it is 0 if `event` came first.
    """
    start = ("-1", "0") if after is None else _columns_of(after)
    return _read_times(connection, *_columns_of(event), start)


def _columns_of(event: str) -> tuple[str, str]:
    return identifier(f"before_event_{event}"), identifier(f"event_{event}")


def _read_times(
    connection: duckdb.DuckDBPyConnection, before: str, step: str, start: tuple[str, str] = ("-1", "0")
) -> OnsetTimes:
    query = _TIMES.format(before=before, step=step, before_start=start[0], start=start[1], judged=IS_JUDGED)
    rows = connection.execute(query).fetchnumpy()
    reached_R, ended_R = (np.asarray(rows[name], np.bool_) for name in ("reached", "ended"))
    names = ("trial", "step", "before", "budget")
    trial_R, step_R, before_R, budget_R = (np.asarray(rows[name], np.int64) for name in names)
    last = max(int(step_R.max(initial=0)), int(budget_R.max(initial=0)))
    return OnsetTimes(trial_R, np.where(ended_R & ~reached_R, last, step_R), reached_R, before_R)


_POINT = pa.struct([("step", pa.int64()), *((name, pa.float64()) for name in ("share", "most", "low", "high"))])
NUMBERS = {
    **dict.fromkeys(("n_trials", "n_trainings", "n_came", "median_before", "median_step"), int),
    **dict.fromkeys(("half_before", "half_step", "low", "high"), int),
    "curve": pa.list_(_POINT),
}
"""`n_came` of `n_trainings` reached the goal. Half of those did after `median_before`, by `median_step`; half of all
after `half_before`, by `half_step`, and with 95% confidence after `low`, by `high`. `curve`: `CurvePoint` by step."""


def onset_table(
    times: OnsetTimes, names: Sequence[str], labels: Sequence[tuple[str, ...]], once_per_trial: bool
) -> pa.Table:
    """One row for each group of trainings with the same labels, in their order. `labels`: of each training, one for
    each name."""
    order = dict.fromkeys(labels)
    number_of = {label: number for number, label in enumerate(order)}
    group_R = np.array([number_of[label] for label in labels], np.int64)
    rows = []
    for label, number in number_of.items():
        inside = times.at(group_R == number)
        rows.append(
            dict(zip(names, label, strict=True))
            | {"n_trials": len(np.unique(inside.trial)), "n_trainings": len(inside.step), "n_came": inside.n_came}
            | {"median_before": inside.median_before, "median_step": inside.median_step}
            | inside.half(once_per_trial=once_per_trial)
            | {"curve": [asdict(point) for point in inside.curve(once_per_trial=once_per_trial)]}
        )
    return table_of({**dict.fromkeys(names, str), **NUMBERS}, rows)


def onset_by(times: OnsetTimes, groups: Groups, once_per_trial: bool) -> pa.Table:
    """As `onset_table`, for groups of trials, in the order of their bins."""
    places = [groups.places[trial] for trial in times.trial.tolist()]
    order = sorted(range(len(places)), key=places.__getitem__)
    labels = [tuple(groups.label(places[row]).values()) for row in order]
    return onset_table(times.at(np.array(order, np.int64)), groups.names, labels, once_per_trial)
