"""Hazard ratios: known truths, trials that end alike, and bins without an estimate."""

import numpy as np
import pytest
from statsmodels.duration.hazard_regression import PHReg

from attnsweep.orchestrator.analysis.hazards import Factor, HazardRatio, HazardRatios, hazard_ratios, ratio_label
from attnsweep.orchestrator.analysis.onset_times import OnsetTimes
from attnsweep.workloads.errors import UserError
from tests.orchestrator.drawn import intervals, tick_labels, unreadable
from tests.present import present


def _draw(n_trials: int, n_replicates: int, shared: float, seed: int = 0) -> tuple[OnsetTimes, tuple[Factor, Factor]]:
    """Times with ratio 2 between the bins of `a` and 1/2 between those of `b`; every fifth training is cut short."""
    rng = np.random.default_rng(seed)
    trial = np.repeat(np.arange(n_trials), n_replicates)
    a, b = (np.repeat(rng.integers(2, size=n_trials), n_replicates) for _ in range(2))
    frailty = np.repeat(np.exp(shared * rng.normal(size=n_trials)), n_replicates)
    exact = rng.exponential(1 / (0.01 * 2.0**a * 0.5**b * frailty))
    last = np.where(np.arange(trial.size) % 5 == 0, 64, 256)
    step = np.minimum(np.ceil(exact / 8).astype(np.int64) * 8, last)
    names = ("low", "high")
    return OnsetTimes(trial, step, exact <= last, step - 1), (Factor("a", names, a), Factor("b", names, b))


def _ratio(found: tuple[HazardRatio, ...], name: str) -> tuple[float, float, float]:
    """The ratio of `high` over `low`, whichever is the reference."""
    one = next(each for each in found if each.name == name and each.label != each.reference)
    ends = [present(one.ratio), present(one.low), present(one.high)]
    low, middle, high = sorted(ends if one.label == "high" else [1 / end for end in ends])
    return middle, low, high


@pytest.mark.slow
def test_ratios_are_those_of_a_cox_regression_of_exact_times() -> None:
    times, factors = _draw(400, 1, 0.0)
    found, note = hazard_ratios(times, factors)
    exposed = np.column_stack([factor.place for factor in factors]).astype(float)
    cox = PHReg(times.step.astype(float), exposed, status=times.came, ties="efron").fit()
    for at, name in enumerate(("a", "b")):
        middle, low, high = _ratio(found, name)
        assert middle == pytest.approx(np.exp(cox.params[at]), rel=0.05)
        assert np.log(high / low) == pytest.approx(2 * 1.96 * cox.bse[at], rel=0.1)
    assert note == ""
    assert {each.ratio for each in found if each.label == each.reference} == {1.0}


@pytest.mark.slow
def test_trainings_of_one_trial_are_not_independent() -> None:
    times, factors = _draw(40, 12, 1.0)
    apart = OnsetTimes(np.arange(len(times.step)), times.step, times.came, times.before)
    (_, low, high), (_, naive_low, naive_high) = (
        _ratio(hazard_ratios(each, factors)[0], "a") for each in (times, apart)
    )
    assert high / low > 1.5 * naive_high / naive_low


@pytest.mark.slow
def test_a_bin_that_never_comes_has_the_ratio_0_and_does_not_move_the_others() -> None:
    times, (a, b) = _draw(60, 4, 0.0)
    extra = np.full(40, 999), np.full(40, 256), np.zeros(40, np.bool_), np.full(40, 256)
    longer = OnsetTimes(
        *(np.concatenate(pair) for pair in zip((times.trial, times.step, times.came, times.before), extra, strict=True))
    )
    three = Factor("a", ("low", "high", "never"), np.concatenate([a.place, np.full(40, 2)]))
    found, _ = hazard_ratios(longer, (three, Factor("b", b.labels, np.concatenate([b.place, np.zeros(40, np.int64)]))))
    (never,) = (each for each in found if each.label == "never")
    assert (never.n_trainings, never.n_came, never.ratio, never.low, never.high) == (40, 0, 0.0, None, None)
    assert ratio_label(never) == "0 (none reached it)"
    assert _ratio(tuple(each for each in found if each != never), "a") == pytest.approx(
        _ratio(hazard_ratios(times, (a, b))[0], "a")
    )


def test_what_cannot_be_estimated_says_why() -> None:
    times, (a, _) = _draw(60, 4, 0.0)
    _, note = hazard_ratios(times, (a, Factor("copy", a.labels, a.place)))
    assert note == "the bins cannot be told apart"
    nobody = OnsetTimes(times.trial, times.step, np.zeros_like(times.came), times.before)
    found, note = hazard_ratios(nobody, (a,))
    assert (note, {each.ratio for each in found}) == ("no training reached it", {None})
    assert hazard_ratios(times, (Factor("one", ("all",), np.zeros_like(a.place)),))[1].startswith("only one bin")
    with pytest.raises(
        UserError,
        match=r"by: got None, expected the name of a parameter, because hazards .*; add by=",
    ):
        hazard_ratios(times, ())


@pytest.mark.slow
def test_the_figure_and_the_table_hold_the_ratios() -> None:
    times, factors = _draw(60, 4, 0.0)
    ratios = HazardRatios("solved", *hazard_ratios(times, factors))
    table = ratios.to_arrow().to_pylist()
    assert [row["ratio"] for row in table] == [each.ratio for each in ratios.ratios]
    (panel,) = (figure := ratios.plot()).axes
    drawn = [each for each in ratios.ratios if each.label != each.reference]
    assert [row[1:] for row in intervals(panel, "x")] == [
        pytest.approx((each.ratio, each.low, each.high)) for each in drawn
    ]
    assert tick_labels(panel, "y") == ["a low", "a high", "b low", "b high"]
    assert unreadable(figure) == []


@pytest.mark.scale
@pytest.mark.simulation
@pytest.mark.slow
def test_intervals_cover_where_trials_end_alike() -> None:
    """The marginal ratio over trials is below the conditional one, so the truth is that of one very large sweep."""
    truth = _ratio(hazard_ratios(*_draw(4_000, 6, 0.7, seed=99))[0], "a")[0]
    covered = []
    for seed in range(50):
        _, low, high = _ratio(hazard_ratios(*_draw(40, 6, 0.7, seed))[0], "a")
        covered.append(low <= truth <= high)
    assert np.mean(covered) > 0.86
