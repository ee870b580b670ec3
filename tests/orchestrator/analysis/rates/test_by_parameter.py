"""Rates by parameter: their bins, the trainings they leave out, and which rate a report is about."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.analysis.rates.answers import outcome_counts
from attnsweep.orchestrator.analysis.rates.bins import coarse_bins
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    SOLVED,
    STUCK,
    Ending,
    ParameterRates,
    Question,
    binned_rates,
    loss_median,
    rates_in_bins,
    read_question,
    stuck_rate,
)
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooled_rate
from attnsweep.orchestrator.analysis.results import read_preferred
from attnsweep.orchestrator.ledger.reader import Ledger, reading
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.search_spaces import Categorical, Float, Int, Sequential, measured
from attnsweep.search_spaces.confidence_sequence import sequential_interval
from attnsweep.search_spaces.dimensions import Scalar, Varied
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.present import present

Trial = tuple[dict[str, Scalar], int]
"""The values of the swept parameters, and the number of stuck trainings among 4."""


def _counts(rates: ParameterRates) -> dict[str, tuple[int, int]]:
    return {each.label: (each.rate.n, each.rate.k) for each in rates.bins}


@pytest.mark.parametrize(
    ("dimension", "values", "counts"),
    [
        (
            Float(low=5e-4, high=3.0, log=True),
            (5e-4, 1e-3, 0.09, 0.1, 3.0),
            {"1e-4..1e-3": 1, "1e-3..1e-2": 1, "1e-2..1e-1": 1, "1e-1..1e0": 1, "1e0..1e1": 1},
        ),
        (Float(low=1e-2, high=1.0, log=True), (1.0,), {"1e-2..1e-1": 0, "1e-1..1e0": 1}),
        (Int(low=2, high=8), (8,), {"2": 0, "3": 0, "4..5": 0, "6": 0, "7..8": 1}),
        (Int(low=2, high=4), (3,), {"2": 0, "3": 1, "4": 0}),
        (
            Float(low=0.1, high=0.6),
            (0.25,),
            {"0.1..0.2": 0, "0.2..0.3": 1, "0.3..0.4": 0, "0.4..0.5": 0, "0.5..0.6": 0},
        ),
        (Categorical(choices=(None, 0.1, 1)), (None, 1.0), {"null": 1, "0.1": 0, "1": 1}),
    ],
)
def test_coarse_bins_are_decades_five_equal_parts_or_values(
    dimension: Varied, values: tuple[Scalar, ...], counts: dict[str, int]
) -> None:
    rates = rates_in_bins("x", dimension, [(value, (4, 3)) for value in values], pooled_rate, coarse_bins)
    assert {each.label: each.n_trials for each in rates.bins} == counts
    assert _counts(rates) == {label: (4 * n, 3 * n) for label, n in counts.items()}
    if isinstance(dimension, Float):
        assert (rates.bins[0].low, rates.bins[-1].high) == (dimension.low, dimension.high)


def test_trials_that_do_not_use_a_parameter_are_in_none_of_its_bins() -> None:
    spec = small_sweep("some", space={"momentum": Float(0.0, 1.0), "beta_1": Categorical((0.5, 0.9))})
    rows: list[list[Scalar]] = [[0.95, None], [None, 0.5], [None, 0.5]]
    momentum, beta = binned_rates(spec, rows, [(4, 1)] * 3, pooled_rate)
    assert [each.n_trials for each in momentum.bins] == [0, 0, 0, 0, 1]
    assert [each.n_trials for each in beta.bins] == [2, 0]


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


def test_trials_that_chose_how_many_they_needed_count_once_each(tmp_path: Path) -> None:
    """8 trainings show that a rate is near 0, 24 that it is near one half; pooling would be biased to one half."""
    halves = ["solved", "runaway"] * 12
    rule = Sequential(width=0.45, at_most=24, batch=8)
    spec = small_sweep("sequential", replicates=rule)
    trials = [trial_rows(0, ["solved"] * 8), trial_rows(1, halves), trial_rows(2, ["solved"] * 8)]
    sweep_on_disk(tmp_path / "sweep", spec, *trials, trial_rows(3, ["runaway"] * 7))
    with Ledger(tmp_path / "sweep").connect() as connection:
        rate = stuck_rate(connection, spec)
        assert (rate.n, rate.k) == (47, 19)
        assert rate.share == pytest.approx((0 + 0.5 + 0 + 1) / 4)
        assert complete_trials(connection, rule) == [0, 1, 2]
        assert complete_trials(connection, 8) == [0, 2]
        best = present(read_preferred(connection, spec).best)
        assert (best.trial, best.rate) == (0, Rate(8, 0, *sequential_interval(0, 8)))


@pytest.mark.slow
def test_the_median_loss_of_a_sweep_is_of_its_trials(tmp_path: Path) -> None:
    solved, diverged = ["solved"] * 4, trial_rows(2, ["diverged"] * 4)
    trials = [trial_rows(0, solved), trial_rows(1, solved, eval_loss=7.0), diverged, trial_rows(3, ["failed"] * 4)]
    for n, expected in ((0, None), (1, 2.0), (2, 4.5), (3, 7.0), (4, 7.0)):
        ledger = Ledger(sweep_on_disk(tmp_path / str(n), small_sweep("s"), *(trials[:n] or trials[3:])).place)
        assert ledger.ask(loss_median) == expected
    ledger = Ledger(sweep_on_disk(tmp_path / "diverged", small_sweep("s"), diverged).place)
    assert ledger.ask(loss_median) is None


@pytest.mark.parametrize(
    ("objective", "outcome", "question"),
    [
        (measured.Rate("solved"), None, Question(SOLVED, is_sought=True)),
        (measured.Rate("solved", direction="minimize"), None, Question(SOLVED, is_sought=False)),
        (measured.Rate("stuck", direction="minimize"), None, Question(STUCK, is_sought=False)),
        (measured.Rate("stuck"), "solved", Question(SOLVED, is_sought=True)),
        (measured.StuckRate(), "solved", Question(SOLVED, is_sought=True)),
        (measured.StuckRate(), "diverged", Question(Ending("diverged"), is_sought=False)),
        (measured.StuckRate(), "marginal", Question(Ending("marginal"), is_sought=False)),
        (measured.StuckRate(), None, Question()),
        (measured.LossQuantile(), None, Question()),
    ],
)
def test_a_report_is_about_the_objective(
    objective: measured.Measured, outcome: str | None, question: Question, tmp_path: Path
) -> None:
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s", objective=objective), trial_rows(0, ["solved"] * 4))
    with reading([Ledger(directory.place)]) as connection:
        assert read_question(connection, directory.spec, outcome) == question
