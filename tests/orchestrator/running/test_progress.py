"""The display of a running sweep: a live bar, plain lines, and `attnsweep status` from another terminal."""

from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from attnsweep.orchestrator.cli.screen.status import print_status
from attnsweep.orchestrator.ledger.trial import JUDGING_COLUMNS
from attnsweep.orchestrator.running.progress import ProgressDisplay
from attnsweep.orchestrator.storage.run_records import Beacon, PackUnderWay
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Sequential
from tests.orchestrator.small_sweep import Rows, small_sweep, sweep_on_disk, trial_rows

PACKS = [PackUnderWay(pack=f"00000{n}-0000-32", n_trainings=32, step=120 + 280 * n, n_steps=500) for n in range(2)]
RULE = Sequential(width=0.45, at_most=24, batch=8)


def _table(*trials: tuple[int, int]) -> pa.Table:
    return _rows([row for trial, n in trials for row in trial_rows(trial, ["solved"] * n)])


def _rows(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in JUDGING_COLUMNS} for row in rows])


def test_the_trainings_to_come_are_a_bound_until_all_trials_are_told() -> None:
    shown = Console(file=StringIO(), force_terminal=False, width=200)
    spec = small_sweep("shown", trials=2, replicates=RULE)
    with ProgressDisplay(shown, spec, _table((0, 8))) as display:
        display.committed([0], None)
        display._show(is_last=True)
        display.committed([1], _table((1, 8)))
    first, last = shown.file.getvalue().strip().splitlines()  # type: ignore[attr-defined]
    assert first.startswith("trials 1/2  trainings 8/at most 48  ")
    assert last.startswith("trials 2/2  trainings 16/16  ")


def test_the_time_left_counts_the_steps_done_in_packs_from_their_first_report_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two packs of 8 of 16 trainings: 6 s for a quarter of both are 12 s for the half that is left."""
    clock = [0.0]
    monkeypatch.setattr("attnsweep.orchestrator.running.progress.time.monotonic", lambda: clock[0])
    file = StringIO()
    shown = Console(file=file, force_terminal=False, width=200)
    with ProgressDisplay(shown, small_sweep("shown"), _table((0, 1)).schema.empty_table()) as display:
        for now, step in ((30.0, 0), (60.0, 25), (66.0, 50)):
            clock[0] = now
            packs = [
                PackUnderWay(pack=f"{n}", n_trainings=8, step=step, n_steps=100, metric=("accuracy", 0.25 + n / 2))
                for n in range(2)
            ]
            display.heartbeat("", packs)
        assert display.seconds_left == pytest.approx(12.0)
    last = file.getvalue().strip().splitlines()[-1]
    assert last.endswith("12 s left  2 packs under way, step 50 of 100, accuracy 0.5 at the last probe")


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDirectory:
    """A sweep of four trials, one of them trained."""
    return sweep_on_disk(tmp_path / "s", small_sweep("s"), trial_rows(0, ["solved"] * 4))


def _status(place: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_status(place)
    return capsys.readouterr().out.splitlines()


def test_status_shows_what_a_running_sweep_has_under_way(
    sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    Beacon(sweep.place, sweep.progress).show("training", 3, PACKS)
    lines = _status(sweep.place, capsys)
    assert "running (training)" in lines[0]
    assert [line.split()[0] for line in lines[-2:]] == ["000000-0000-32", "000001-0000-32"]
    assert ["step 120 of 500" in lines[-2], "step 400 of 500" in lines[-1]] == [True, True]
    pack = PACKS[0].model_copy(update={"n_running": 20, "where": "node7 cuda"})
    Beacon(sweep.place, sweep.progress).show("training", 3, [pack])
    assert "node7 cuda" in _status(sweep.place, capsys)[-1]


@pytest.mark.parametrize("content", ['{"at": "2026', "[" * 100_000, None])
def test_status_needs_no_sign_of_life(
    content: str | None, sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (sweep.place / "progress.json").write_text(content)
    lines = _status(sweep.place, capsys)
    assert lines[:2] == [f"{sweep.sweep}: not finished", "trials      1 of 4 with trainings in the ledger"]


def test_a_finished_sweep_has_nothing_under_way(sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    Beacon(sweep.place, sweep.progress).show("training", 3, PACKS)
    sweep.record_run(finished=True, seconds=1.0)
    lines = _status(sweep.place, capsys)
    assert lines[0] == f"{sweep.sweep}: finished"
    assert not any("under way" in line or "resume" in line for line in lines)
