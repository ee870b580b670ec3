"""The display of a running sweep: a live bar, plain lines, and `attnsweep status` from another terminal."""

import re
import threading
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from attnsweep.orchestrator.cli.screen.status import follow_status, print_status
from attnsweep.orchestrator.ledger.trial import JUDGING_COLUMNS
from attnsweep.orchestrator.running.progress import ProgressDisplay
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.run_records import Beacon, PackUnderWay, Progress, span
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.search_spaces import Sequential
from tests.orchestrator.small_sweep import Rows, folder_of, small_sweep, sweep_on_disk, trial_rows

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
        display.trial_told(0)
        display._print_line(display._line())
        display.trial_told(1)
        display.rows_committed(_table((1, 8)))
    first, last = shown.file.getvalue().strip().splitlines()  # type: ignore[attr-defined]
    assert first.startswith("trials 1/2  trainings 8/at most 48  ")
    assert last.startswith("trials 2/2  trainings 16/16  ")


def test_the_last_line_has_the_rate_of_all_trainings() -> None:
    shown = Console(file=StringIO(), force_terminal=False, width=200)
    stuck = _rows(trial_rows(1, ["degenerate_zero"] * 4))
    with ProgressDisplay(shown, small_sweep("shown", trials=2, replicates=4), stuck.slice(0, 0)) as display:
        for number, rows in enumerate((_table((0, 4)), stuck)):
            display.trial_told(number)
            display.rows_committed(rows)
    assert "stuck 0.50 [" in shown.file.getvalue().strip().splitlines()[-1]  # type: ignore[attr-defined]


def test_ended_trials_take_no_memory() -> None:
    spec, step = small_sweep("shown", trials=10_000, replicates=1), 2_000
    columns = _table((0, 1)).to_pydict()
    tables = [
        pa.table({**{name: values * step for name, values in columns.items()}, "trial": range(first, first + step)})
        for first in range(0, 8_000, step)
    ]
    held = []
    with ProgressDisplay(Console(file=StringIO(), force_terminal=False), spec, tables[0].slice(0, 0)) as display:
        tracemalloc.start()
        for rows in tables:
            for trial in rows["trial"].to_pylist():
                display.trial_told(trial)
            display.rows_committed(rows)
            held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    # A number for each of 6,000 trials would be 200 kB.
    assert held[-1] - held[0] < 50_000


def test_status_names_the_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep_on_disk(tmp_path / "s", small_sweep("s", replicates=RULE), trial_rows(0, ["solved"] * 8))
    print_status(tmp_path / "s")
    assert "trainings   8 of at most 96 in the ledger" in capsys.readouterr().out


def _live(width: int, n_trials: int) -> list[str]:
    """The lines of the last picture of a live bar of a sweep with several outcomes."""
    console = PlainConsole(file=StringIO(), width=width)
    console._force_terminal = True
    outcomes = ["solved", "degenerate_zero", "marginal", "runaway", "plateau", "diverged", "overfit", "failed"]
    rows = _table((0, 1)).schema.empty_table()
    with ProgressDisplay(console, small_sweep("shown", trials=n_trials, replicates=8), rows) as display:
        display.trial_told(0)
        display.rows_committed(_rows(trial_rows(0, outcomes)))
        display.heartbeat("", PACKS)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines() if line.strip()][-2:]


def test_the_live_bar_has_all_that_matters_in_80_columns() -> None:
    bar, words = _live(80, n_trials=100_000)
    assert len(bar) <= 80
    assert len(words) <= 80
    assert re.fullmatch(r"trainings .* 8/800000 \d+/s \d+ \w+ left", bar)
    assert words.startswith("trials 1/100000  stuck 0.43 [0.16, 0.75]  2 packs under way, step 120 to 400 of")
    assert words.endswith("…")


def test_plain_lines_say_what_is_under_way_before_anything_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.running.progress._PLAIN_SECONDS", 0.0)
    shown = Console(file=StringIO(), force_terminal=False, width=200)
    with ProgressDisplay(shown, small_sweep("shown"), _table((0, 1)).schema.empty_table()) as display:
        display.heartbeat("Ray to start 2 trainers")
        display.heartbeat("", PACKS[:1])
    waiting, training = shown.file.getvalue().strip().splitlines()  # type: ignore[attr-defined]
    assert waiting == "waiting for Ray to start 2 trainers"
    assert training == "trials 0/4  trainings 0/16  0 trainings/s  1 pack under way, step 120 of 500"


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
    assert last.endswith("0.67 trainings/s  12 s left  2 packs under way, step 50 of 100, accuracy 0.5")


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDirectory:
    """A sweep of four trials, one of them trained."""
    return sweep_on_disk(tmp_path / "s", small_sweep("s"), trial_rows(0, ["solved"] * 4))


def _status(place: Place, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_status(place)
    return capsys.readouterr().out.splitlines()


def _said(place: Place, ago: timedelta, doing: str = "training") -> None:
    said = Progress(at=datetime.now(UTC) - ago, doing=doing, n_asked=3, packs=tuple(PACKS))
    place.put_text("progress.json", said.model_dump_json())


def test_status_shows_what_a_running_sweep_has_under_way(
    sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    Beacon(sweep.place).show("training", 3, PACKS)
    lines = _status(sweep.place, capsys)
    assert re.fullmatch(rf"{sweep.sweep}: running \(training\); last sign of life \d s ago", lines[0])
    assert lines[1] == "trials      3 of 4 drawn, 1 with trainings in the ledger"
    assert lines[-3:] == [
        "under way   64 trainings",
        "  000000-0000-32   32 trainings, step 120 of 500",
        "  000001-0000-32   32 trainings, step 400 of 500",
    ]
    pack = PACKS[0].model_copy(update={"n_running": 20, "where": "node7 cuda"})
    Beacon(sweep.place).show("training", 3, [pack], "2 trials behind: no answer")
    assert _status(sweep.place, capsys)[-3:] == [
        "MLflow      2 trials behind: no answer",
        "under way   32 trainings",
        "  000000-0000-32   32 trainings, 20 still training, step 120 of 500, on node7 cuda",
    ]
    _said(sweep.place, -timedelta(hours=1))
    assert _status(sweep.place, capsys)[0].endswith("last sign of life 0 s ago")


@pytest.mark.parametrize(
    ("ago", "doing", "says"),
    [
        (timedelta(minutes=5), "training", "not finished; no sign of life for 5 min: killed?"),
        (timedelta(seconds=5), "", "not finished; its last run ended 5 s ago"),
    ],
)
def test_status_tells_a_sweep_that_stopped(
    ago: timedelta, doing: str, says: str, sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    _said(sweep.place, ago, doing)
    lines = _status(sweep.place, capsys)
    assert lines[0] == f"{sweep.sweep}: {says}"
    assert lines[-1] == f"continue with  attnsweep resume {sweep.place}"


@pytest.mark.parametrize(
    "break_it",
    [
        lambda path: path.write_text('{"at": "2026'),
        lambda path: path.write_text('{"at": "2026-01-01T00:00:00", "doing": "x", "n_asked": 1, "packs": []}'),
        lambda path: path.write_bytes(bytes(range(256))),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path),
        lambda _: None,
    ],
)
def test_status_needs_no_sign_of_life(
    break_it: Callable[[Path], object], sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(folder_of(sweep) / "progress.json")
    lines = _status(sweep.place, capsys)
    assert lines[:2] == [f"{sweep.sweep}: not finished", "trials      1 of 4 with trainings in the ledger"]


def test_a_finished_sweep_has_nothing_under_way(sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    Beacon(sweep.place).show("training", 3, PACKS)
    sweep.record_run(finished=True, seconds=1.0)
    lines = _status(sweep.place, capsys)
    assert lines[0] == f"{sweep.sweep}: finished"
    assert not any("under way" in line or "resume" in line for line in lines)


def test_a_sweep_does_not_stop_for_want_of_a_sign_of_life(tmp_path: Path) -> None:
    beacon = Beacon(LocalFolder(tmp_path / "gone"))
    beacon.show("training", 3, PACKS)
    beacon.end()
    assert not (tmp_path / "gone").exists()


def test_spans_of_time_in_words() -> None:
    spans = [timedelta(seconds=59), timedelta(seconds=130), timedelta(hours=2), timedelta(days=3)]
    assert [span(each) for each in spans] == ["59 s", "2 min", "2 h", "3 days"]


def test_status_says_how_long_and_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = trial_rows(0, ["solved"] * 4) + trial_rows(1, ["solved"] * 3 + ["failed"])
    rows[-1]["error"] = "Traceback:\n  of a line\nValueError: no such word\n"
    sweep = sweep_on_disk(tmp_path / "s", small_sweep("s"), rows)
    Beacon(sweep.place).show("training", 2, (), seconds_left=540.0)
    lines = _status(sweep.place, capsys)
    assert lines[-2:] == ["failed      1 of 1: ValueError: no such word", "time left   9 min"]


def test_status_is_followed_until_the_run_ends(sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.cli.screen.status._LOOK_SECONDS", 0.0)
    beacon = Beacon(sweep.place)
    beacon.show("training", 2, ())
    followed = threading.Thread(target=follow_status, args=(sweep.place,))
    followed.start()
    beacon.end()
    followed.join(timeout=60)
    assert not followed.is_alive()
