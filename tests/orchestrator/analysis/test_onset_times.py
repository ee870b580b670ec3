"""When trainings reach an event or a level, and the share that has, by step, for trainings of different lengths."""

from typing import Any

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from attnsweep.orchestrator.analysis.onset_times import CurvePoint, OnsetTimes, event_times
from attnsweep.orchestrator.analysis.rates.intervals import pooled_rate, wilson

# trial, outcome, n_steps, param_n_steps, diverged_step, before_event_a, event_a, before_event_b, event_b
_ROWS = [
    (0, "plateau", 100, 100, None, 5, 10, 30, 40),
    (1, "plateau", 100, 100, None, 10, 20, 100, None),
    (2, "solved", 30, 100, None, 25, 30, 20, 25),
    (3, "diverged", 50, 100, 50, 40, None, 40, None),
    (4, "plateau", 100, 100, None, 100, None, 50, 60),
    (5, "failed", 0, 100, None, None, None, None, None),
    (6, "pruned", 40, 100, None, 5, 10, 40, None),
    (7, "plateau", 100, 100, None, None, 0, 5, 10),
    (8, "plateau", 100, 100, None, 5, 10, 5, 10),
]


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    opened = duckdb.connect()
    columns = "trial int, outcome varchar, n_steps int, param_n_steps int, diverged_step int"
    events = "before_event_a int, event_a int, before_event_b int, event_b int"
    opened.execute(f"create table trainings ({columns}, {events}, replicate int default 0)")
    opened.executemany("insert into trainings values (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)", _ROWS)
    return opened


def test_a_training_without_the_event_is_censored_or_never_has_it(connection: duckdb.DuckDBPyConnection) -> None:
    times = event_times(connection, "a")
    # The one that diverged at step 50 stays without it to the last step; failed and pruned ones are left out.
    assert times.trial.tolist() == [0, 1, 2, 3, 4, 7, 8]
    assert times.step.tolist() == [10, 20, 30, 100, 100, 0, 10]
    assert times.reached.tolist() == [True, True, True, False, False, True, True]
    assert times.before[times.reached].tolist() == [5, 10, 25, -1, 5]


def test_a_delay_counts_from_the_first_event(connection: duckdb.DuckDBPyConnection) -> None:
    times = event_times(connection, "b", after="a")
    assert times.trial.tolist() == [0, 1, 2, 7, 8]
    # a between 6 and 10 and b between 31 and 40 are 21 to 34 apart; both between 6 and 10 are 0 to 4 apart.
    assert times.before[times.reached].tolist() == [20, -1, 5, -1]
    assert times.step.tolist() == [34, 80, 0, 10, 4]
    assert times.reached.tolist() == [True, False, True, True, True]


Z = stats.norm.ppf(0.975)


def share_by_step(
    step: NDArray[np.int64], came: NDArray[np.bool_], trial: NDArray[np.int64], *, once_per_trial: bool = False
) -> tuple[CurvePoint, ...]:
    """Of trainings that are measured at each step."""
    return OnsetTimes(trial, step, came, step - 1).curve(once_per_trial=once_per_trial)


def test_without_censoring_the_curve_has_the_pooled_rates() -> None:
    rng = np.random.default_rng(3)
    trial = np.repeat(np.arange(12), 5)
    step = rng.choice([0, 10, 20, 40], 60) + 10 * (trial % 3)
    came = rng.random(60) < 0.7
    step[~came] = 100
    for point in share_by_step(step, came, trial):
        by_then = came & (step <= point.step)
        rate = pooled_rate([(5, int(by_then[trial == each].sum())) for each in range(12)])
        assert (point.share, point.low, point.high) == pytest.approx((rate.share, rate.low, rate.high))


def test_with_censoring_it_is_kaplan_and_meiers_with_greenwoods_variance() -> None:
    rng = np.random.default_rng(4)
    n = 80
    step, came = rng.integers(1, 30, n), rng.random(n) < 0.5
    came[step < 5] = False
    curve = share_by_step(step, came, np.arange(n))
    survival: Any = stats.ecdf(stats.CensoredData.right_censored(step, ~came)).sf
    upper = survival.confidence_interval(method="linear").high
    inner = 0
    for point in curve[1:]:
        without = float(survival.evaluate(point.step))
        assert point.share == pytest.approx(1 - without)
        if not point.share:
            still = n - int((step < point.step).sum())
            assert (point.low, point.high) == pytest.approx(wilson(0.0, still))
        elif (high := float(upper.evaluate(point.step))) < 1:
            variance = ((high - without) / Z) ** 2
            expected = wilson(point.share, without * (1 - without) / variance)
            assert (point.low, point.high) == pytest.approx(expected)
            inner += 1
    assert inner > 10


def test_medians_name_the_probes_between_which_they_are() -> None:
    """Probes at 0, 180 and 207: a drop at 203 is known to have come after 180, by 207."""
    before, step = np.array([180, 180, 180, 207]), np.array([207, 207, 207, 207])
    times = OnsetTimes(np.arange(4), step, np.array([True, True, True, False]), before)
    assert (times.median_before, times.median_step) == (180, 207)
    half = times.half(once_per_trial=False)
    assert tuple(half.values()) == (180, 207, 180, None)
    shares = {point.step: (point.share, point.most) for point in times.curve(once_per_trial=False)}
    assert shares == {0: (0, 0), 181: (0, 0.75), 207: (0.75, 0.75)}
    start = OnsetTimes(np.arange(2), np.array([0, 0]), np.ones(2, bool), np.array([-1, -1]))
    assert (start.median_before, start.median_step) == (None, 0)
