"""A sweep of 2,000 short trainings. A trainer is killed every few seconds, and the driver three times.

    python benchmarks/soak.py [--trials 250] [--seconds 4] [--driver-kills 3] [--seed 0]
        [--out benchmarks/soak.json]

The same sweep first runs undisturbed. Then a random trainer is killed (SIGKILL) every few seconds. After a quarter, a
half and three quarters of the trainings the driver is killed too, and the sweep is resumed. At the end the two ledgers
must hold the same trainings with the same losses, and `attnsweep audit` must find nothing. Only processes of the Ray
that this benchmark starts are killed; `--seed` chooses them.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harness import attnsweep_command, command_of, descendants, main

REPLICATES = 8


def measure(*, trials: int = 250, seconds: float = 4.0, driver_kills: int = 3, seed: int = 0) -> dict[str, Any]:
    """Runs both sweeps on one Ray, and compares them."""
    import ray

    n_trainings = trials * REPLICATES
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        disturbed, undisturbed = Path(folder, "s"), Path(folder, "undisturbed")
        ray.init(address="local", include_dashboard=False, log_to_driver=False)
        address = str(ray.get_runtime_context().gcs_address)
        commands = {
            path: command_of(drive, path=str(path), address=address, n_trials=trials)
            for path in (undisturbed, disturbed)
        }
        kills = [n_trainings * at // (driver_kills + 1) for at in range(1, driver_kills + 1)]
        try:
            began = time.monotonic()
            assert start(commands[undisturbed], folder).wait() == 0
            between = time.monotonic()
            n_trainers = disturb(commands[disturbed], disturbed, seconds, kills, random.Random(seed))
            ended = time.monotonic()
        finally:
            ray.shutdown()
        audit = subprocess.run(attnsweep_command("audit", str(disturbed)), stdout=sys.stderr, check=False)
        return {
            "trainings": n_trainings,
            "trainers_killed": n_trainers,
            "drivers_killed": driver_kills - len(kills),
            "trainings_trained_again": n_handed_out(disturbed) - n_trainings,
            "undisturbed_seconds": round(between - began, 1),
            "seconds": round(ended - between, 1),
            "overhead": round((ended - between) / (between - began) - 1, 2),
            "same_rows": rows(disturbed) == rows(undisturbed),
            "audit_exit_code": audit.returncode,
        }


def disturb(command: list[str], path: Path, seconds: float, kills: list[int], chance: random.Random) -> int:
    """Runs the sweep with kills; returns how many trainers were killed. Kills of the driver that were done are left out
    of `kills`, the numbers of trainings at which they are due."""
    n_trainers, driver = 0, start(command, path.parent)
    while True:
        try:
            assert driver.wait(seconds * chance.uniform(0.5, 1.5)) == 0
            return n_trainers
        except subprocess.TimeoutExpired:
            pass
        if kills and len(rows(path)) >= kills[0]:
            kills.pop(0)
            driver.kill()
            driver.wait()
            driver = start(command, path.parent)
        elif trainers := trainer_processes():
            os.kill(chance.choice(trainers), signal.SIGKILL)
            n_trainers += 1


def start(command: list[str], folder: str | Path) -> "subprocess.Popen[bytes]":
    """A driver that runs its sweep, or resumes it."""
    return subprocess.Popen(command, cwd=folder, stdout=sys.stderr)


def trainer_processes() -> list[int]:
    """Trainers' processes that descend from this process."""
    return [process for process in descendants(os.getpid()) if _title(process).startswith("ray::Trainer")]


def _title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def drive(path: str, address: str, n_trials: int) -> None:
    """The driver. It records each pack that the loop hands out, but not the replays at the end."""
    import ray
    from rich.console import Console

    from attnsweep import Resources, resume_sweep, run_sweep
    from attnsweep.orchestrator.running.loop import SweepLoop
    from attnsweep.orchestrator.training.messages import PackOrder
    from attnsweep.orchestrator.training.ray_pool import TrainerPool
    from attnsweep.search_spaces import Float, Sweep

    train, run = TrainerPool.train, SweepLoop.run

    def train_and_note(pool: TrainerPool, order: PackOrder) -> None:
        with Path(path).with_suffix(".packs").open("a") as notes:
            notes.write(f"{len(order.tasks)}\n")
        train(pool, order)

    def run_and_note(loop: SweepLoop, should_stop: Callable[[], bool]) -> bool:
        with patch.object(TrainerPool, "train", train_and_note):
            return run(loop, should_stop)

    SweepLoop.run = run_and_note  # type: ignore[assignment,method-assign]
    ray.init(address=address, log_to_driver=False)
    resources, console = Resources(pack_size=16, checkpoint_seconds=2.0), Console(stderr=True)
    if Path(path, "sweep.json").exists():
        resume_sweep(Path(path), resources, console)
        return
    space: dict[str, Any] = {"n_steps": 2000, "stop_when_solved": False}
    space["init_sigma"] = Float(low=1e-3, high=1.0, log=True)
    course: dict[str, Any] = {"sampler": "random", "trials": n_trials, "replicates": REPLICATES}
    spec = Sweep(name="soak", workload="category_pairs", space=space, **course)
    run_sweep(spec, Path(path), resources, console)


def n_handed_out(path: Path) -> int:
    """The number of trainings that the loop has handed out, repetitions included."""
    return sum(map(int, path.with_suffix(".packs").read_text().split()))


def rows(path: Path) -> list[dict[str, Any]]:
    """How every training in the ledger so far ended."""
    from attnsweep.orchestrator.ledger.reader import Ledger
    from attnsweep.workloads.errors import UserError

    columns = ["trial", "replicate", "training_id", "outcome", "final_loss", "eval_loss", "n_steps"]
    try:
        table = Ledger(path).trainings(columns=columns)
    except UserError:
        return []
    found: list[dict[str, Any]] = table.sort_by([("trial", "ascending"), ("replicate", "ascending")]).to_pylist()
    return found


if __name__ == "__main__":
    main(measure)
