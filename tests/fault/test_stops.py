"""Ctrl-C and SIGTERM: finished packs are committed, and unfinished ones continue from checkpoints at resume."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.orchestrator import cli
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import PackOrder, Report, StillTraining, TrainerLost
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.trainer_actor import TrainerActor
from tests.fault import sweeps

ROOT = Path(__file__).parents[2]
TERMINATED = """
import signal
import sys
from attnsweep.orchestrator import cli
from tests.fault.killed_driver import plant
plant("attnsweep.orchestrator.storage.sweep_directory:SweepDirectory.check_new", signal.SIGTERM)
cli.main()
"""

pytestmark = pytest.mark.usefixtures("no_mlflow")


@pytest.fixture(scope="module")
def undisturbed(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "long"
    sweeps.run(sweeps.long_sweep(), path)
    return path


# tests/security/test_listening.py ends a Ray that the sweep started.
def test_packs_under_way_are_handed_back_and_go_on_where_they_were(
    local_ray: str, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.training.ray_pool.TrainerActor", sweeps.sliced(TrainerActor))
    receive, under_way = SweepLoop._receive, set()

    def stop_once_both_are_under_way(loop: SweepLoop, order: PackOrder, report: Report | TrainerLost) -> None:
        receive(loop, order, report)
        if isinstance(report, StillTraining) and order.pack not in under_way:
            under_way.add(order.pack)
            if len(under_way) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    path = tmp_path / "s"
    with monkeypatch.context() as patch:
        patch.setattr(SweepLoop, "_receive", stop_once_both_are_under_way)
        resources = {"local": False, "address": local_ray, "n_trainers": (2, 2), "pack_size": 2}
        assert not sweeps.run(sweeps.long_sweep(), path, **resources).finished
    assert len(list((path / "checkpoints").glob("*.parquet"))) == 2
    assert not SweepDirectory.open(path).finished
    console = Console(record=True, width=200)
    assert resume_sweep(path, Resources(local=True, pack_size=2), console).finished
    assert "4 of them from a checkpoint" in console.export_text()
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
    assert sweeps.curves(path) == sweeps.curves(undisturbed)
    assert list((path / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2])
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


def test_sigterm_is_ctrl_c_before_the_sweep_begins(tmp_path: Path) -> None:
    words = ["run", "quickstart", "--trials", "1", "--replicates", "1", "--local", "--dir", str(tmp_path / "s")]
    done = subprocess.run(
        [sys.executable, "-c", TERMINATED, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
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
