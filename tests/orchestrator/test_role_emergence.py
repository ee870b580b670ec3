"""When roles emerge: the first probe from which they stay, and the share by step where trainings differ in length."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.emergence import RoleEmergence, emergence_curve, role_emergence
from orchestrator.analysis.intervals import binomial_rate, mean_rate, pooled_rate, wilson
from orchestrator.analysis.role_history import RoleHistory, role_histories
from orchestrator.ledger.reader import Ledger
from tests.orchestrator.head_rows import Timelines, head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import STEPS, small_sweep, trial_rows
from workloads.diagnostics.roles import emergence

SPEC = small_sweep("roles", workload="translation")
Z = stats.norm.ppf(0.975)


def _ledger(path: Path, *trainings: Timelines) -> Ledger:
    rows = trial_rows(0, ["plateau"] * len(trainings))
    heads = [row for each, timelines in zip(rows, trainings, strict=True) for row in head_rows(each, timelines)]
    sweep_with_heads(path, SPEC, [rows], heads)
    return Ledger(path)


def _history(ledger: Ledger, layer: int | None, role: str) -> RoleHistory:
    with ledger.connect() as connection:
        found = role_histories(connection, any_layer=layer is None)
    [history] = [each for each in found if (each.layer, each.role) == (layer, role)]
    return history


def _emergence(ledger: Ledger, layer: int | None, role: str) -> RoleEmergence:
    with ledger.connect() as connection:
        found = role_emergence(connection, SPEC, any_layer=layer is None)
    [one] = [each for each in found if (each.layer, each.role) == (layer, role)]
    return one


def test_a_role_emerges_where_it_stays_from(tmp_path: Path) -> None:
    """At STEPS 0, 1, 2, 4, 8."""
    ledger = _ledger(
        tmp_path / "s",
        {(0, 0): "ppppp", (0, 1): "....."},
        {(0, 0): ".pp.p", (0, 1): "....."},  # holds, is lost, holds again
        {(0, 0): ".pp..", (0, 1): "...pp"},  # another head takes over
        {(0, 0): ".ppp.", (0, 1): "....."},  # lost for good: censored at the end
        {(0, 0): ".p", (0, 1): ".."},  # ended early
        {(0, 0): "...", (0, 1): ".s."},  # ended early without: censored there
    )
    history = _history(ledger, 0, "positional")
    assert history.emerged.tolist() == [True, True, True, False, True, False]
    assert history.step.tolist() == [0, 8, 1, 8, 1, 2]
    assert history.n_with.tolist() == [1, 1, 1, 0, 1, 0]
    assert history.n_heads.tolist() == [2] * 6
    found = _emergence(ledger, 0, "positional")
    assert (found.n_trainings, found.n_emerged) == (6, 4)
    assert (found.median_step, found.median_share) == (1.0, 1 / 8)
    never = _emergence(ledger, 0, "syntactic")
    assert (never.n_emerged, never.median_step, never.median_share) == (0, None, None)
    assert [point.share for point in never.curve] == [0.0] * len(never.curve)


def test_any_layer_takes_heads_of_all_layers_together(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path / "s", {(0, 0): ".p...", (1, 0): "..ppp"}, {(0, 0): "...p.", (1, 0): "....."})
    assert _history(ledger, 0, "positional").emerged.tolist() == [False, False]
    assert _history(ledger, 1, "positional").step.tolist() == [2, 8]
    assert _history(ledger, None, "positional").step.tolist() == [1, 8]
    assert _history(ledger, None, "positional").n_heads.tolist() == [2, 2]


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.lists(st.text("p.", min_size=len(STEPS), max_size=len(STEPS)), min_size=1, max_size=12))
def test_it_is_the_emergence_of_the_diagnostics(tmp_path_factory: pytest.TempPathFactory, timelines: list[str]) -> None:
    ledger = _ledger(tmp_path_factory.mktemp("s") / "s", *({(0, 0): letters} for letters in timelines))
    history = _history(ledger, 0, "positional")
    expected = emergence(np.array([[letter == "p" for letter in letters] for letters in timelines]).T, STEPS)
    assert history.step.tolist() == expected.step.tolist()
    assert history.emerged.tolist() == expected.emerged.tolist()


def test_without_censoring_the_curve_has_the_pooled_rates() -> None:
    rng = np.random.default_rng(3)
    trial = np.repeat(np.arange(12), 5)
    step = rng.choice([0, 10, 20, 40], 60) + 10 * (trial % 3)
    emerged = rng.random(60) < 0.7
    step[~emerged] = 100
    for point in emergence_curve(step, emerged, trial):
        came = emerged & (step <= point.step)
        rate = pooled_rate([(5, int(came[trial == each].sum())) for each in range(12)])
        assert (point.share, point.low, point.high) == pytest.approx((rate.share, rate.low, rate.high))


@pytest.mark.parametrize("n_trials", [1, 2, 12])
def test_where_trials_count_once_the_curve_has_their_mean_rates(n_trials: int) -> None:
    rng = np.random.default_rng(5)
    n = rng.choice([8, 16, 64], n_trials)
    trial = np.repeat(np.arange(n_trials), n)
    emerged = rng.random(trial.size) < np.repeat(rng.random(n_trials), n)
    step = np.where(emerged, rng.choice([0, 10, 20], trial.size), 40)
    for point in emergence_curve(step, emerged, trial, once_per_trial=True):
        came = np.bincount(trial, emerged & (step <= point.step)).astype(int)
        rate = mean_rate(list(zip(n.tolist(), came.tolist(), strict=True)))
        assert (point.share, point.low, point.high) == pytest.approx((rate.share, rate.low, rate.high))


def test_trials_that_count_once_and_nearly_agree_tell_as_much_as_their_trainings() -> None:
    """Their spread is less than chance's, which bounds what is made of it."""
    counts = [(8, 5), (16, 8), (64, 30)]
    trial = np.repeat(np.arange(3), [n for n, _ in counts])
    emerged = np.concatenate([np.arange(n) < k for n, k in counts])
    end = emergence_curve(np.where(emerged, 1, 2), emerged, trial, once_per_trial=True)[-1]
    rate = mean_rate(counts)
    assert (end.share, end.low, end.high) == pytest.approx((rate.share, rate.low, rate.high))


def test_where_trials_count_once_a_censored_training_takes_its_weight_along() -> None:
    """Weights 2, 2 and six times 2/3, of which one 2 is censored: 6 of 8 tell, of 2 trials."""
    step, emerged = np.array([1, *[2] * 7]), np.array([False, *[True] * 7])
    end = emergence_curve(step, emerged, np.array([0, 0, *[1] * 6]), once_per_trial=True)[-1]
    assert (end.share, end.low) == pytest.approx((1.0, wilson(1.0, 6 * 2 / 8)[0]))


def test_where_all_trials_have_as_many_trainings_they_may_count_once_or_not() -> None:
    rng = np.random.default_rng(6)
    trial, step, emerged = np.repeat(np.arange(9), 4), rng.integers(1, 9, 36), rng.random(36) < 0.6
    once = emergence_curve(step, emerged, trial, once_per_trial=True)
    assert once == emergence_curve(step, emerged, trial)


def test_where_trials_count_once_and_all_come_the_curve_ends_at_one() -> None:
    trial, step = np.repeat([0, 1, 2], [3, 7, 11]), np.arange(21) % 5
    assert emergence_curve(step, np.ones(21, bool), trial, once_per_trial=True)[-1].share == 1.0


def test_with_censoring_it_is_kaplan_and_meiers_with_greenwoods_variance() -> None:
    rng = np.random.default_rng(4)
    n = 80
    step, emerged = rng.integers(1, 30, n), rng.random(n) < 0.5
    emerged[step < 5] = False
    curve = emergence_curve(step, emerged, np.arange(n))
    survival = stats.ecdf(stats.CensoredData.right_censored(step, ~emerged)).sf
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


def test_one_trial_has_plain_intervals() -> None:
    curve = emergence_curve(np.array([1, 1, 2, 4]), np.array([True, True, True, False]), np.zeros(4, int))
    expected = [binomial_rate(k, 4) for k in (0, 2, 3, 3)]
    assert [(point.low, point.high) for point in curve] == [pytest.approx((each.low, each.high)) for each in expected]
    everywhere = emergence_curve(np.array([0, 2]), np.array([True, True]), np.array([0, 1]))
    assert (everywhere[-1].share, everywhere[-1].high) == (1.0, 1.0)
    assert everywhere[-1].low == pytest.approx(binomial_rate(2, 2).low)


def test_replicates_in_none_of_which_it_emerges_count_once_per_trial() -> None:
    curve = emergence_curve(np.full(16, 8), np.zeros(16, bool), np.repeat(np.arange(4), 4))
    expected = pooled_rate([(4, 0)] * 4)
    assert [(point.step, point.low, point.high) for point in curve] == [
        (step, pytest.approx(expected.low), pytest.approx(expected.high)) for step in (0, 8)
    ]


def test_curves_cover_the_truth_where_trials_differ_and_trainings_are_censored() -> None:
    """Beta-binomial trials of 12 replicates, a third of them censored before the step that is looked at."""
    rng = np.random.default_rng(8)
    n_trials, n_replicates, n_sweeps, rate = 10, 12, 300, 0.4
    trial = np.repeat(np.arange(n_trials), n_replicates)
    covered = []
    for _ in range(n_sweeps):
        chance = np.repeat(rng.beta(0.4, 0.6, n_trials), n_replicates)
        step = np.where(rng.random(trial.size) < chance, rng.choice([10, 20], trial.size), 40)
        end = np.where(rng.random(trial.size) < 1 / 3, 15, 40)
        emerged = (step <= end) & (step < 40)
        point = [each for each in emergence_curve(np.minimum(step, end), emerged, trial) if each.step <= 20][-1]
        covered.append(point.low <= rate <= point.high)
    assert 0.91 < np.mean(covered) < 0.995


def test_long_curves_are_thinned_between_their_ends() -> None:
    curve = emergence_curve(np.arange(1, 1001), np.ones(1000, bool), np.arange(1000) // 4)
    assert len(curve) == 64
    assert (curve[0].step, curve[-1].step, curve[-1].share) == (0, 1000, 1.0)
