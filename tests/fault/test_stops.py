"""Ctrl-C and SIGTERM: finished packs are committed, and unfinished ones continue from checkpoints at resume."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attnsweep.orchestrator import cli
from attnsweep.orchestrator.cli.screen.status import print_status
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep
from attnsweep.orchestrator.running.signals import STOP_SECONDS
from attnsweep.orchestrator.storage.run_records import PROGRESS
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import PackOrder, Progress, Report, TrainerLost
from attnsweep.orchestrator.training.ray_pool import TrainerPool
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.trainer_actor import TrainerActor
from attnsweep.workloads.engine.pack import Pack
from tests.fault import sweeps
from tests.fault.servers import wait_until

ROOT = Path(__file__).parents[2]
BUSY = """
import threading
from pathlib import Path
from attnsweep import Sweep
from attnsweep.workloads.category_pairs import CategoryPairs

class Busy(CategoryPairs):
    def final_metrics(self, *_):  # Not `loss`: the driver calls it too, before the sweep.
        Path({mark!r}).touch()
        threading.Event().wait()

def sweep():
    return Sweep(name="busy", workload="busy.py:Busy", space={{"n_steps": 1}}, trials=1)
"""
TERMINATED = """
import signal
import sys
from attnsweep.orchestrator import cli
from tests.fault.killed_driver import plant
plant(sys.argv.pop(1), signal.SIGTERM)
cli.main()
"""
STARTING_AND_ENDING = [
    ("attnsweep.orchestrator.storage.sweep_directory:SweepDirectory.check_new", "--local"),
    pytest.param(
        "+ray._private.node:Node.start_head_processes", "--trainers=1", marks=[pytest.mark.ray, pytest.mark.scale]
    ),
    pytest.param("attnsweep.orchestrator.tracking.following:Following.close", "--local", marks=pytest.mark.scale),
]
"""The moments of the signal: before Ray starts, while it starts, and in the final wait for MLflow."""

pytestmark = pytest.mark.usefixtures("no_mlflow")


@pytest.fixture(scope="module")
def undisturbed(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "long"
    sweeps.run(sweeps.long_sweep(), path)
    return path


def _both_at_once(folder: Path) -> type[TrainerActor]:
    """A trainer that ends its first slice once another has begun one, however late that one starts."""

    class Waiting(sweeps.sliced(TrainerActor)):  # type: ignore[misc]
        def _train_slice(self, pack: Pack[Any]) -> None:
            (folder / f"{os.getpid()}.begun").touch()
            while len(list(folder.glob("*.begun"))) < 2:
                threading.Event().wait(0.01)
            super()._train_slice(pack)

    return Waiting


# test_lost_trainers.py has a drained node hand back its pack, and tests/security/test_listening.py ends Ray by Ctrl-C.
@pytest.mark.scale
def test_packs_under_way_are_handed_back_and_go_on_where_they_were(
    local_ray: str,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.training.ray_pool.TrainerActor", _both_at_once(tmp_path))
    monkeypatch.setattr("attnsweep.orchestrator.storage.run_records._WRITE_SECONDS", 0.0)
    # Else a report that is there at once is not shown before the stop.
    monkeypatch.setattr("attnsweep.orchestrator.running.session.SHOW_SECONDS_PER_TRAINER", 0.0)
    receive, under_way = SweepLoop._receive, set()

    def stop_once_both_are_under_way(loop: SweepLoop, order: PackOrder, report: Report | TrainerLost) -> None:
        receive(loop, order, report)
        if isinstance(report, Progress) and order.pack not in under_way:
            under_way.add(order.pack)
            if len(under_way) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    path = tmp_path / "s"
    with monkeypatch.context() as patch:
        patch.setattr(SweepLoop, "_receive", stop_once_both_are_under_way)
        # A trainer placed much later would find the other's pack done.
        patch.setattr(TrainerPool, "has_idle", property(lambda pool: pool.n_placed == 2 and pool._plan.has_idle))
        # Its last report is examined below, as if it were still running.
        patch.setattr(SweepDirectory, "record_run", lambda *_, **__: None)
        assert not sweeps.run(sweeps.long_sweep(), path, local=False, n_trainers=2, pack_size=2).finished
    assert len(list((path / "checkpoints").glob("*.parquet"))) == 2
    assert not SweepDirectory.open(path).finished
    print_status(path)
    shown = capsys.readouterr().out
    assert "running (training)" in shown
    assert len(re.findall(r"2 trainings, step [1-9]\d* of 250", shown)) == 2

    console = Console(record=True, width=200)
    assert resume_sweep(path, Resources(local=True, pack_size=2), console).finished
    assert "4 of them from a checkpoint" in console.export_text()
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
    assert sweeps.curves(path) == sweeps.curves(undisturbed)
    assert list((path / "checkpoints").iterdir()) == []
    assert (said := PROGRESS.read_if_sound(path)) is not None
    assert (said.doing, said.n_asked, said.packs) == ("", 2, ())


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_schedulers_signal_hands_back_the_states(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.training.local_pool.Trainer", sweeps.sliced())
    path = tmp_path / "s"
    with monkeypatch.context() as patch:
        patch.setattr(SweepLoop, "_receive", sweeps.after_slices(2, lambda: os.kill(os.getpid(), number)))
        assert not sweeps.run(sweeps.long_sweep(), path, pack_size=4).finished
    assert len([*(path / "checkpoints").iterdir()]) == 1
    assert sweeps.resume(path).finished
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)


@pytest.mark.scale
@pytest.mark.ray
def test_a_busy_trainer_and_a_silent_mlflow_share_the_time_that_a_stop_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM to the single process, as schedulers send it. MLflow is frozen: only the kernel accepts connections."""
    (tmp_path / "busy.py").write_text(BUSY.format(mark=str(tmp_path / "mark")))
    attnsweep = str(Path(sys.executable).with_name("attnsweep"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with subprocess.Popen(
            [attnsweep, "run", "busy.py", "--dir", "s"],
            cwd=tmp_path,
            env=_environment(),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            wait_until(lambda: (tmp_path / "mark").exists() or process.poll() is not None, "the trainer to be busy")
            process.terminate()
            began = time.monotonic()
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert time.monotonic() - began < 2 * STOP_SECONDS
    assert "Traceback" not in errors


@pytest.mark.parametrize(("point", "on"), STARTING_AND_ENDING)
def test_sigterm_is_ctrl_c_from_beginning_to_end(point: str, on: str, tmp_path: Path) -> None:
    words = ["run", "quickstart", "--trials", "1", "--replicates", "1", on, "--no-report", "--dir", str(tmp_path / "s")]
    done = subprocess.run(
        [sys.executable, "-c", TERMINATED, point, *words],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_signal_ends_the_command_at_once_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted_twice(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(SweepLoop, "run", interrupted_twice)
    words = ["run", "quickstart", "--trials", "1", "--replicates", "1", "--local", "--dir", str(tmp_path / "s")]
    monkeypatch.setattr(sys, "argv", ["attnsweep", *words])
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
        # A third one is no traceback.
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130
    assert f"interrupted; continue with: attnsweep resume {tmp_path / 's'}\n" in capsys.readouterr().err


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
