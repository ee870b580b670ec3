"""What a report is about: what the user names, else the sweep's objective."""

from pathlib import Path

import pytest

from attnsweep import LossQuantile, Rate, StuckRate
from attnsweep.orchestrator.analysis.rates.by_parameter import SOLVED, STUCK, Ending, Question, read_question
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.search_spaces.measured import Measured
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows


@pytest.mark.parametrize(
    ("objective", "outcome", "question"),
    [
        (Rate("solved"), None, Question(SOLVED, is_sought=True)),
        (Rate("solved", direction="minimize"), None, Question(SOLVED, is_sought=False)),
        (Rate("stuck", direction="minimize"), None, Question(STUCK, is_sought=False)),
        (Rate("stuck"), "solved", Question(SOLVED, is_sought=True)),
        (StuckRate(), "solved", Question(SOLVED, is_sought=True)),
        (StuckRate(), "diverged", Question(Ending("diverged"), is_sought=False)),
        (StuckRate(), "marginal", Question(Ending("marginal"), is_sought=False)),
        (StuckRate(), None, Question()),
        (LossQuantile(), None, Question()),
    ],
)
def test_a_report_is_about_the_objective(
    objective: Measured, outcome: str | None, question: Question, tmp_path: Path
) -> None:
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s", objective=objective), trial_rows(0, ["solved"] * 4))
    with Ledger(directory.place).reading() as connection:
        assert read_question(connection, directory.spec, outcome) == question
