"""Stuck rates: their intervals, their bins, and what they leave out."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.completeness import complete_trials
from orchestrator.analysis.figures import stuck_rate_figure
from orchestrator.analysis.findings import Findings, read_findings
from orchestrator.analysis.intervals import Rate, binomial_rate, mean_rate, pooled_rate, trial_rate
from orchestrator.analysis.rates import (
    ParameterRates,
    best_trial,
    loss_median,
    outcome_counts,
    pooling,
    rates_by,
    stuck_rate,
)
from orchestrator.ledger.reader import Ledger
from search_spaces import Categorical, Conditional, Float, Int, LossQuantile, Sequential, Sweep
from search_spaces.confidence_sequence import sequential_interval
from tests.orchestrator.small_sweep import Rows, sequential_counts, small_sweep, sweep_on_disk, trial_rows

SOLVED, STUCK = ["solved"] * 4, ["runaway"] * 4


def _by_parameter(tmp_path: Path, spec: Sweep, *trials: Rows) -> dict[str, ParameterRates]:
    sweep_on_disk(tmp_path / "sweep", spec, *trials)
    with Ledger(tmp_path / "sweep").connect() as connection:
        return {f"{each.parameter} {each.where}".strip(): each for each in rates_by(connection, spec)}


def _counts(rates: ParameterRates) -> dict[str, tuple[int, int]]:
    return {each.label: (each.rate.n, each.rate.k) for each in rates.bins}


def test_nothing_counted_has_no_interval() -> None:
    assert binomial_rate(0, 0) == pooled_rate([]) == pooled_rate([(0, 0), (0, 0)]) == Rate(0, 0, None, None)
    assert binomial_rate(0, 0).share is None


def test_the_median_loss_of_a_sweep_is_of_its_trials(tmp_path: Path) -> None:
    diverged = trial_rows(2, ["diverged"] * 4)
    trials = [trial_rows(0, SOLVED), trial_rows(1, SOLVED, eval_loss=7.0), diverged, trial_rows(3, ["failed"] * 4)]
    for n, expected in ((0, None), (1, 2.0), (2, 4.5), (3, 7.0), (4, 7.0)):
        ledger = Ledger(sweep_on_disk(tmp_path / str(n), small_sweep("s"), *(trials[:n] or trials[3:])).path)
        assert ledger.ask(loss_median) == expected
    ledger = Ledger(sweep_on_disk(tmp_path / "diverged", small_sweep("s"), diverged).path)
    assert ledger.ask(loss_median) is None


@given(st.lists(st.integers(0, 1), min_size=1, max_size=60))
def test_trials_of_one_training_have_plain_wilson_intervals(ends: list[int]) -> None:
    rate = pooled_rate([(1, end) for end in ends])
    plain = stats.binomtest(sum(ends), len(ends)).proportion_ci(method="wilson")
    assert (rate.low, rate.high) == pytest.approx((plain.low, plain.high), abs=1e-12)


@given(st.lists(st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1))
def test_pooling_never_narrows_and_never_counts_less_than_its_trials(counts: list[tuple[int, int]]) -> None:
    rate = pooled_rate(counts)
    plain = binomial_rate(rate.k, rate.n)
    assert rate.low <= plain.low + 1e-12
    assert plain.high - 1e-12 <= rate.high
    assert 0 <= rate.low <= rate.share + 1e-12
    assert rate.share - 1e-12 <= rate.high <= 1


def test_replicates_that_always_agree_count_once_per_trial() -> None:
    once = binomial_rate(3, 12)
    agreeing = pooled_rate([(16, 16)] * 3 + [(16, 0)] * 9)
    assert (agreeing.low, agreeing.high) == pytest.approx((once.low, once.high))
    never = binomial_rate(0, 12)
    assert pooled_rate([(16, 0)] * 12).high == pytest.approx(never.high)


@pytest.mark.parametrize(
    ("n_trials", "rate", "least"), [(3, 0.5, 0.91), (5, 0.5, 0.91), (14, 0.5, 0.91), (14, 0.1, 0.87)]
)
def test_intervals_cover_the_truth_where_trials_differ(n_trials: int, rate: float, least: float) -> None:
    """Less often where the one or two trials that hold most of what is stuck decide: said in the module."""
    rng = np.random.default_rng(7)
    correlation, n_replicates, n_sweeps = 0.6, 16, 400
    strength = 1 / correlation - 1
    chances = rng.beta(rate * strength, (1 - rate) * strength, (n_sweeps, n_trials))
    stuck = rng.binomial(n_replicates, chances)
    pooled = [pooled_rate([(n_replicates, k) for k in row]) for row in stuck.tolist()]
    naive = [binomial_rate(sum(row), n_replicates * n_trials) for row in stuck.tolist()]
    covered = np.mean([each.low <= rate <= each.high for each in pooled])
    assert least < covered < 0.995
    assert np.mean([each.low <= rate <= each.high for each in naive]) < 0.6


def test_logarithmic_ranges_are_binned_by_decades(tmp_path: Path) -> None:
    spec = small_sweep("decades", space={"init_sigma": Float(low=5e-4, high=3.0, log=True)})
    trials = [
        trial_rows(trial, STUCK if sigma > 0.05 else SOLVED, param_init_sigma=sigma)
        for trial, sigma in enumerate([5e-4, 1e-3, 0.09, 0.1, 3.0])
    ]
    rates = _by_parameter(tmp_path, spec, *trials)["init_sigma"]
    assert _counts(rates) == {
        "1e-4..1e-3": (4, 0),
        "1e-3..1e-2": (4, 0),
        "1e-2..1e-1": (4, 4),
        "1e-1..1e0": (4, 4),
        "1e0..1e1": (4, 4),
    }
    assert [(each.low, each.high) for each in rates.bins][::4] == [(5e-4, 1e-3), (1.0, 3.0)]


def test_the_upper_end_falls_into_the_last_bin(tmp_path: Path) -> None:
    spec = small_sweep(
        "ends", space={"init_sigma": Float(low=1e-2, high=1.0, log=True), "n_positions": Int(low=2, high=8)}
    )
    rates = _by_parameter(tmp_path, spec, trial_rows(0, STUCK, param_init_sigma=1.0, param_n_positions=8))
    assert _counts(rates["init_sigma"]) == {"1e-2..1e-1": (0, 0), "1e-1..1e0": (4, 4)}
    assert _counts(rates["n_positions"]) == {"2": (0, 0), "3": (0, 0), "4..5": (0, 0), "6": (0, 0), "7..8": (4, 4)}
    assert rates["n_positions"].bins[0].rate.low is None


def test_linear_ranges_have_up_to_five_bins(tmp_path: Path) -> None:
    spec = small_sweep("linear", space={"learning_rate": Float(low=0.1, high=0.6), "n_positions": Int(low=2, high=4)})
    rates = _by_parameter(tmp_path, spec, trial_rows(0, SOLVED, param_learning_rate=0.25, param_n_positions=3))
    assert _counts(rates["learning_rate"]) == {
        "0.1..0.2": (0, 0),
        "0.2..0.3": (4, 0),
        "0.3..0.4": (0, 0),
        "0.4..0.5": (0, 0),
        "0.5..0.6": (0, 0),
    }
    assert _counts(rates["n_positions"]) == {"2": (0, 0), "3": (4, 0), "4": (0, 0)}


def test_categories_are_binned_by_value_null_included(tmp_path: Path) -> None:
    spec = small_sweep("categories", space={"init_sigma": Categorical(choices=(None, 0.1, 1))})
    trials = [trial_rows(0, STUCK, param_init_sigma=None), trial_rows(1, SOLVED, param_init_sigma=1.0)]
    assert _counts(_by_parameter(tmp_path, spec, *trials)["init_sigma"]) == {"null": (4, 4), "0.1": (0, 0), "1": (4, 0)}


def test_a_conditional_parameter_is_shown_where_it_varies(tmp_path: Path) -> None:
    spec = small_sweep(
        "conditional",
        space={
            "optimizer": Categorical(choices=("sgd", "adam")),
            "learning_rate": Conditional(
                on="optimizer",
                among=("adam",),
                then=Float(low=1e-3, high=1e-2, log=True),
                otherwise=Categorical(choices=(0.1, 0.2)),
            ),
        },
    )
    rates = _by_parameter(
        tmp_path,
        spec,
        trial_rows(0, STUCK, param_optimizer="adam", param_learning_rate=5e-3),
        trial_rows(1, SOLVED, param_optimizer="sgd", param_learning_rate=0.2),
    )
    assert _counts(rates["learning_rate optimizer=adam"]) == {"1e-3..1e-2": (4, 4)}
    assert _counts(rates["learning_rate not optimizer=adam"]) == {"0.1": (0, 0), "0.2": (4, 0)}


def test_failed_trainings_are_left_out_and_diverged_ones_are_not_stuck(tmp_path: Path) -> None:
    spec = small_sweep("ends")
    sweep_on_disk(
        tmp_path / "sweep",
        spec,
        trial_rows(0, ["failed", "diverged", "marginal", "degenerate_zero"]),
        trial_rows(1, ["failed"] * 4),
    )
    with Ledger(tmp_path / "sweep").connect() as connection:
        rate = stuck_rate(connection, spec)
        assert (rate.n, rate.k) == (3, 2)
        assert outcome_counts(connection) == {"failed": 5, "degenerate_zero": 1, "diverged": 1, "marginal": 1}


def test_the_best_trial_follows_the_objective(tmp_path: Path) -> None:
    trials = [
        trial_rows(0, STUCK, eval_loss=0.1),
        trial_rows(1, SOLVED, eval_loss=0.9, param_init_sigma=0.5),
        trial_rows(2, SOLVED, eval_loss=0.4),
        trial_rows(3, ["solved"], eval_loss=0.0),
        trial_rows(4, ["failed"] * 4),
    ]
    spec = small_sweep("best")
    sweep_on_disk(tmp_path / "sweep", spec, *trials)
    with Ledger(tmp_path / "sweep").connect() as connection:
        fewest_stuck = best_trial(connection, spec)
        assert (fewest_stuck.trial, fewest_stuck.value) == (2, 0.0)
        least_loss = best_trial(connection, spec.but(objective=LossQuantile()))
        assert (least_loss.trial, least_loss.value, least_loss.rate.k) == (0, 0.1, 4)
        most_loss = best_trial(connection, spec.but(objective=LossQuantile(direction="maximize")))
        assert (most_loss.trial, most_loss.parameters["init_sigma"]) == (1, 0.5)


def test_trials_that_chose_how_many_they_needed_count_once_each(tmp_path: Path) -> None:
    """8 trainings tell that a rate is near 0, 24 that it is near one half: pooled they would lean to one half."""
    halves = ["solved", "runaway"] * 12
    rule = Sequential(width=0.45, at_most=24, batch=8)
    spec = small_sweep("sequential", replicates=rule)
    trials = [trial_rows(0, ["solved"] * 8), trial_rows(1, halves), trial_rows(2, ["solved"] * 8)]
    sweep_on_disk(tmp_path / "sweep", spec, *trials, trial_rows(3, ["runaway"] * 7))
    with Ledger(tmp_path / "sweep").connect() as connection:
        rate = stuck_rate(connection, spec)
        assert (rate.n, rate.k, rate.share) == (47, 19, pytest.approx((0 + 0.5 + 0 + 1) / 4))
        assert complete_trials(connection, rule) == [0, 1, 2]
        assert complete_trials(connection, 8) == [0, 2]
        best = best_trial(connection, spec)
        assert (best.trial, best.rate) == (0, Rate(8, 0, *sequential_interval(0, 8)))


def test_one_sweep_whose_trials_chose_is_enough_for_trials_to_count_once() -> None:
    fixed, chosen = small_sweep("a"), small_sweep("b", replicates=Sequential())
    assert [pooling(*specs) for specs in ((fixed, fixed), (fixed, chosen), (chosen,))] == [
        pooled_rate,
        mean_rate,
        mean_rate,
    ]


def test_a_trial_is_not_complete_by_its_failed_trainings(tmp_path: Path) -> None:
    """Of 8, 7 failed: had these counted as not stuck, that would be enough."""
    rule = Sequential(width=0.45, at_most=24, batch=8)
    mostly_failed = trial_rows(0, [*["failed"] * 7, "solved"])
    sweep_on_disk(
        tmp_path / "sweep", small_sweep("failed", replicates=rule), mostly_failed, trial_rows(1, ["solved"] * 8)
    )
    with Ledger(tmp_path / "sweep").connect() as connection:
        assert complete_trials(connection, rule) == [1]


def test_the_mean_over_trials_has_an_interval_that_covers_it() -> None:
    """Trials that differ, each trained until its own interval is narrow: pooled trainings miss their mean rate."""
    rng = np.random.default_rng(11)
    rule = Sequential(width=0.35, at_most=96, batch=8)
    mean, pooled = [], []
    for _ in range(200):
        counts = [sequential_counts(rule, rate, rng) for rate in rng.beta(0.3, 0.9, 12)]
        mean.append(mean_rate(counts))
        pooled.append(pooled_rate(counts))
    assert np.mean([each.low <= 0.25 <= each.high for each in mean]) > 0.91
    assert np.mean([each.share for each in mean]) == pytest.approx(0.25, abs=0.03)
    assert np.mean([each.share for each in pooled]) > 0.3


def test_one_trial_has_the_interval_that_it_was_stopped_by() -> None:
    rule = Sequential()
    assert trial_rate(rule, 3, 40) == mean_rate([(40, 3), (0, 0)]) == Rate(40, 3, *sequential_interval(3, 40))
    assert trial_rate(8, 3, 8) == binomial_rate(3, 8)
    assert mean_rate([]) == trial_rate(rule, 0, 0) == Rate(0, 0, None, None)


@given(st.lists(st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=2))
def test_a_mean_is_between_the_shares_and_its_interval_around_it(counts: list[tuple[int, int]]) -> None:
    rate = mean_rate(counts)
    shares = [k / n for n, k in counts]
    assert min(shares) - 1e-9 <= rate.share <= max(shares) + 1e-9
    assert 0 <= rate.low <= rate.share + 1e-9
    assert rate.share - 1e-9 <= rate.high <= 1


def test_an_empty_ledger_has_a_summary(tmp_path: Path) -> None:
    spec = small_sweep("empty")
    sweep_on_disk(tmp_path / "sweep", spec)
    with Ledger(tmp_path / "sweep").connect() as connection:
        summary = read_findings(connection, spec)
    assert (summary.n_trainings, summary.best, summary.stuck) == (0, None, Rate(0, 0, None, None))
    assert "| 1e-4..1e-3 | 0 | - |" in summary.markdown()


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    spec = small_sweep("figure", space={**small_sweep("x").space, "optimizer": Categorical(choices=("sgd", "adam"))})
    path = tmp_path_factory.mktemp("sweeps") / "sweep"
    sweep_on_disk(path, spec, trial_rows(0, STUCK), trial_rows(1, ["solved", "marginal", "solved", "solved"]))
    with Ledger(path).connect() as connection:
        return read_findings(connection, spec)


def test_the_summary_is_plain_json_and_markdown(summary: Findings) -> None:
    stuck = json.loads(json.dumps(summary.as_json(), allow_nan=False))["stuck_rate"]
    assert (stuck["n"], stuck["k"], stuck["share"]) == (8, 5, 0.625)
    assert "| sgd | 2 | 0.62 [" in summary.markdown()


def test_the_figure_names_its_axes_and_draws_each_bin_that_holds_trials(summary: Findings, tmp_path: Path) -> None:
    figure = stuck_rate_figure(summary.by_parameter, title="figure")
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    panels = [panel for panel in figure.axes if panel.get_visible()]
    assert [panel.get_xlabel() for panel in panels] == [
        "initialization $σ$",
        "learning rate $η$",
        "optimizer",
    ]
    assert [panel.get_xscale() for panel in panels] == ["log", "log", "linear"]
    assert [len(panel.containers) for panel in panels] == [1, 1, 1]
