"""What a forecast promised is kept for the sweep that it was made for, and shown beside what the sweep took."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.orchestrator.running.summary import Summary, summarize
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.run_records import PROMISE, Promise, promise_of, remember_promise, take_promise
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.sweep_record import Extension
from attnsweep.search_spaces import Sweep
from tests.orchestrator.small_sweep import curve_rows, small_sweep, sweep_on_disk, trial_rows

PROMISED = Promise(seconds=3.1, seconds_low=2.9, seconds_high=3.44, is_bound=True, n_rows=295_000, n_bytes=2_900_000)
HERE = Environment(versions={"python": "3"}, code={})
ELSEWHERE = Environment(versions={"python": "4"}, code={})


@pytest.fixture(autouse=True)
def _no_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def promised_for(directory: Path, spec: Sweep, environment: Environment = HERE) -> Promise | None:
    sweep = SweepDirectory.create(directory, spec, {}, environment)
    take_promise(sweep)
    return promise_of(SweepDirectory.open(directory))


def summary_of(sweep: SweepDirectory, *, finished: bool = True) -> Summary:
    return summarize(sweep, refused={}, finished=finished, seconds=1.0, n_before=0, replays=None)


def test_a_promise_is_for_one_sweep_with_any_seed_in_one_environment(tmp_path: Path) -> None:
    spec = small_sweep("s")
    remember_promise(spec, HERE.id, PROMISED)
    assert promised_for(tmp_path / "same", spec) == PROMISED
    assert promised_for(tmp_path / "seed", spec.but(seed=7)) == PROMISED
    assert promised_for(tmp_path / "longer", spec.but(trials=5)) is None
    assert promised_for(tmp_path / "other versions", spec, ELSEWHERE) is None


def test_it_is_not_that_of_a_sweep_with_more_trials(tmp_path: Path) -> None:
    remember_promise(small_sweep("s"), HERE.id, PROMISED)
    assert promised_for(tmp_path / "s", small_sweep("s")) == PROMISED
    assert promise_of(SweepDirectory.open(tmp_path / "s").extended(Extension(trials=1))) is None


def test_no_state_folder_and_a_damaged_file_are_no_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small_sweep("s")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    remember_promise(spec, HERE.id, PROMISED)
    assert promised_for(tmp_path / "s", spec) is None
    (tmp_path / "s" / PROMISE.name).write_text('{"seconds": 1}')
    assert promise_of(SweepDirectory.open(tmp_path / "s")) is None


@pytest.mark.slow
def test_the_summary_compares_it_with_what_the_sweep_took(tmp_path: Path) -> None:
    spec = small_sweep("s")
    rows = trial_rows(0, ["solved"] * 2)
    sweep = sweep_on_disk(tmp_path / "s", spec, rows)
    assert summary_of(sweep).promised is None
    remember_promise(spec, sweep.environment or "", PROMISED)
    take_promise(sweep)
    assert summary_of(sweep, finished=False).promised is None
    found = summary_of(sweep).promised
    assert found is not None
    assert found.seconds == pytest.approx(sum(row["train_seconds"] for row in rows))
    assert found.n_rows == len(rows) + len(curve_rows(rows))
    assert found.n_bytes == sum(path.stat().st_size for path in (tmp_path / "s").glob("*/*.parquet"))
    text = io.StringIO()
    summary_of(sweep).print(Console(file=text, width=200))
    assert "promised at most 3.1 s of training (2.9 to 3.4), 295,000 rows, 2.9 MB; took" in text.getvalue()
