"""Rates by parameter: their bins, the trainings they leave out, and which rate a report is about."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.analysis.rates.by_parameter import (
    SOLVED,
    STUCK,
    Ending,
    Question,
    binned_rates,
    by_title,
    loss_median,
    rate_of,
    read_question,
)
from attnsweep.orchestrator.analysis.rates.outcomes import outcome_counts
from attnsweep.orchestrator.ledger.reader import Ledger, reading
from attnsweep.search_spaces import Categorical, Conditional, Float, Int, measured
from attnsweep.search_spaces.dimensions import Scalar, Varied
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows


@pytest.mark.parametrize(
    ("dimension", "values", "counts"),
    [
        (
            Float(low=5e-4, high=3.0, log=True),
            (5e-4, 1e-3, 0.09, 0.1, 3.0),
            {"5e-4..1e-3": 1, "1e-3..1e-2": 1, "1e-2..1e-1": 1, "1e-1..1e0": 1, "1e0..3e0": 1},
        ),
        (Float(low=1e-2, high=1.0, log=True), (1.0,), {"1e-2..1e-1": 0, "1e-1..1e0": 1}),
        (Int(low=2, high=8), (8,), {"2..3": 0, "4": 0, "5..6": 0, "7": 0, "8": 1}),
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
    spec = small_sweep("bins", space={"x": dimension})
    of_trial = dict(enumerate(values))
    rows = binned_rates([spec], {"x": of_trial}, dict.fromkeys(of_trial, (4, 3)))
    assert {row["bin"]: row["n_trials"] for row in rows} == counts
    assert {row["bin"]: (row["n"], row["k"]) for row in rows} == {label: (4 * n, 3 * n) for label, n in counts.items()}
    if isinstance(dimension, Float):
        assert (rows[0]["low_end"], rows[-1]["high_end"]) == (dimension.low, dimension.high)


def test_trials_that_do_not_use_a_parameter_are_in_none_of_its_bins() -> None:
    spec = small_sweep("some", space={"momentum": Float(0.0, 1.0), "beta_1": Categorical((0.5, 0.9))})
    values: dict[str, dict[int, Scalar]] = {
        "momentum": {0: 0.95, 1: None, 2: None},
        "beta_1": {0: None, 1: 0.5, 2: 0.5},
    }
    rows = binned_rates([spec], values, dict.fromkeys(range(3), (4, 1)))
    assert [row["n_trials"] for row in rows] == [0, 0, 0, 0, 1, 2, 0]


def test_a_conditional_parameter_has_bins_under_each_condition() -> None:
    branches = Conditional(on="optimizer", among=("sgd",), then=Float(0.0, 1.0), otherwise=Categorical((0.5,)))
    spec = small_sweep("some", space={"optimizer": Categorical(("sgd", "adam")), "momentum": branches})
    values: dict[str, dict[int, Scalar]] = {"optimizer": {0: "sgd", 1: "adam"}, "momentum": {0: 0.95, 1: 0.5}}
    found = by_title(binned_rates([spec], values, dict.fromkeys(range(2), (4, 1))))
    assert {title: [row["n_trials"] for row in rows] for title, rows in found.items()} == {
        "optimizer": [1, 1],
        "momentum (optimizer=sgd)": [0, 0, 0, 0, 1],
        "momentum (not optimizer=sgd)": [1],
    }


def test_failed_trainings_are_left_out_and_diverged_ones_are_not_stuck(tmp_path: Path) -> None:
    spec = small_sweep("ends")
    sweep_on_disk(
        tmp_path / "sweep",
        spec,
        trial_rows(0, ["failed", "diverged", "marginal", "degenerate_zero"]),
        trial_rows(1, ["failed"] * 4),
    )
    with Ledger(tmp_path / "sweep").connect() as connection:
        rate = rate_of(connection, STUCK, spec)
        assert (rate.n, rate.k) == (3, 2)
        assert outcome_counts(connection) == {"failed": 5, "degenerate_zero": 1, "diverged": 1, "marginal": 1}


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
        (measured.Rate("stuck"), "solved", Question(SOLVED, is_sought=True)),
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
