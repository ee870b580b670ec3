"""A Ray that does not start, or dies: one line that says how to continue, exit code 1, and none of Ray's own output."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from attnsweep.orchestrator.ledger.reader import Ledger
from tests.fault import sweeps
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

ROOT = Path(__file__).parents[2]
NOT_STARTED = "attnsweep: Ray did not start on this machine (Exception: this node did not come up"


@pytest.fixture
def no_start(no_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise Exception("this node did not come up\n" + "[state-dump] ...\n" * 50)

    monkeypatch.setattr(ray, "init", fail)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_a_new_sweep_is_not_begun(no_start: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = command("run", "quickstart", "--engine", "eager")
    (line,) = ended.err.splitlines()
    assert ended.code == 1
    assert line.startswith(NOT_STARTED)
    assert list(tmp_path.iterdir()) == []


def test_one_that_was_begun_can_be_resumed(no_start: None, tmp_path: Path) -> None:
    path = sweep_on_disk(tmp_path / "s", small_sweep("s"), trial_rows(0, ["solved"] * 4)).place
    ended = command("resume", path)
    *_, line, hint = ended.err.splitlines()
    assert ended.code == 1
    assert line.startswith(NOT_STARTED)
    assert f"attnsweep resume {path}" in hint


PROGRAM = """
import os, signal, subprocess, sys
from attnsweep.orchestrator import cli
from attnsweep.orchestrator.training import ray_pool
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.training.trainer import StillTraining

killed, receive, is_killed = sys.argv.pop(1), SweepLoop._receive, False

def kill_once_it_trains(loop, order, report):
    global is_killed
    receive(loop, order, report)
    if isinstance(report, StillTraining) and not is_killed:
        is_killed = True
        ours = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True)
        (pid,) = [line.split()[0] for line in ours.stdout.splitlines() if line.split()[1] == killed]
        os.kill(int(pid), signal.SIGKILL)

ray_pool._HEAD_SECONDS = 3.0
SweepLoop._receive = kill_once_it_trains
cli.main()
"""


@pytest.mark.ray
@pytest.mark.parametrize(
    ("process", "fault"),
    [
        ("gcs_server", "the head of the Ray cluster has not"),
        pytest.param("raylet", "Ray's node", marks=pytest.mark.scale),
    ],
)
def test_a_ray_that_dies_stops_the_sweep_and_says_how_to_go_on(
    process: str, fault: str, tmp_path: Path, no_mlflow: None
) -> None:
    """Ray itself would end the driver after a minute, with a page on stdout and no word on the sweep."""
    spec, path = tmp_path / "spec.json", tmp_path / "s"
    space = {"n_steps": 1_000_000, "n_categories": 3, "n_positions": 5, "stop_when_solved": False}
    spec.write_text(sweeps.long_sweep(space=space).to_json())
    words = [sys.executable, "-c", PROGRAM, process, "run", str(spec), "--dir", str(path), "--trainers", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1, done.stderr
    *_, said, hint = done.stderr.splitlines()
    assert fault in said
    assert f"attnsweep resume {path}" in hint
    assert "Traceback" not in done.stderr
    assert Ledger(path).trainings().num_rows == 0
