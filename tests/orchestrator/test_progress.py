"""What is shown of a sweep whose trials choose how many trainings they need."""

from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from orchestrator.progress import ProgressDisplay
from orchestrator.status import print_status
from search_spaces import Sequential
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

RULE = Sequential(width=0.45, at_most=24, batch=8)


def _table(*trials: tuple[int, int]) -> pa.Table:
    columns = ("trial", "replicate", "outcome", "stuck", "eval_loss")
    rows = [row for trial, n in trials for row in trial_rows(trial, ["solved"] * n)]
    return pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows])


def test_the_trainings_to_come_are_a_bound_until_all_trials_are_told() -> None:
    shown = Console(file=StringIO(), force_terminal=False, width=200)
    spec = small_sweep("shown", trials=2, replicates=RULE)
    with ProgressDisplay(shown, spec, _table((0, 8))) as display:
        display.trial_told(0)
        display._print_line(display._line())
        display.trial_told(1)
        display.rows_committed(_table((1, 8)))
    first, last = shown.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert first.startswith("trials 1/2  trainings 8/at most 48  ")
    assert last.startswith("trials 2/2  trainings 16/16  ")


def test_status_names_the_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep_on_disk(tmp_path / "s", small_sweep("s", replicates=RULE), trial_rows(0, ["solved"] * 8))
    print_status(tmp_path / "s")
    assert "trainings   8 of at most 96 in the ledger" in capsys.readouterr().out
