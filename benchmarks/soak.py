"""A sweep of 2,000 short trainings. A trainer is killed every few seconds, and the driver three times.

    python benchmarks/soak.py [--trials 250] [--seconds 4] [--driver-kills 3] [--out benchmarks/soak.json]

The same sweep first runs undisturbed. Then a random trainer is killed (SIGKILL) every few seconds. After a quarter, a
half and three quarters of the trainings the driver is killed too, and the sweep is resumed. At the end the two ledgers
must hold the same trainings with the same losses, and `attnsweep audit` must find nothing. Only processes of the Ray
that this benchmark starts are killed.
"""

import argparse
import json
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

REPLICATES = 8


def main() -> None:
    """Runs both sweeps and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds between two kills of a trainer")
    parser.add_argument("--driver-kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of trainers to kill")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--drive", nargs=2, metavar=("DIR", "ADDRESS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(Path(options.drive[0]), options.drive[1], options.trials)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        found = soak(Path(folder), options)
    text = json.dumps({"benchmark": "soak", "cpus": os.cpu_count(), **found}, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def soak(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Runs both sweeps on one Ray, and compares them."""
    import ray

    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    address = str(ray.get_runtime_context().gcs_address)
    try:
        started = time.monotonic()
        assert start_driver(folder / "undisturbed", address, options.trials).wait() == 0
        undisturbed_seconds = time.monotonic() - started
        started = time.monotonic()
        n_trainers_killed, n_drivers_killed = disturb(folder / "s", address, options)
        seconds = time.monotonic() - started
    finally:
        ray.shutdown()
    attnsweep = str(Path(sys.executable).parent / "attnsweep")
    audit = subprocess.run([attnsweep, "audit", str(folder / "s")], capture_output=True, text=True, check=False)
    print(audit.stdout + audit.stderr, file=sys.stderr)
    n_trainings = options.trials * REPLICATES
    return {
        "trainings": n_trainings,
        "trainers_killed": n_trainers_killed,
        "drivers_killed": n_drivers_killed,
        "trainings_trained_again": n_handed_out(folder / "s") - n_trainings,
        "undisturbed_seconds": round(undisturbed_seconds, 1),
        "seconds": round(seconds, 1),
        "overhead": round(seconds / undisturbed_seconds - 1, 2),
        "same_rows": outcomes(folder / "s") == outcomes(folder / "undisturbed"),
        "audit_exit_code": audit.returncode,
    }


def disturb(path: Path, address: str, options: argparse.Namespace) -> tuple[int, int]:
    """Runs the sweep with kills; returns how many trainers and drivers were killed."""
    chance = random.Random(options.seed)
    n_trainings = options.trials * REPLICATES
    driver_kills = [n_trainings * (at + 1) // (options.driver_kills + 1) for at in range(options.driver_kills)]
    n_trainers = n_drivers = 0
    driver = start_driver(path, address, options.trials)
    while True:
        try:
            assert driver.wait(options.seconds * chance.uniform(0.5, 1.5)) == 0
            return n_trainers, n_drivers
        except subprocess.TimeoutExpired:
            pass
        if driver_kills and n_rows(path) >= driver_kills[0]:
            driver_kills.pop(0)
            driver.kill()
            driver.wait()
            n_drivers += 1
            driver = start_driver(path, address, options.trials)
        elif trainers := trainer_processes():
            os.kill(chance.choice(trainers), signal.SIGKILL)
            n_trainers += 1


def trainer_processes() -> list[int]:
    """Trainers' processes that descend from this process."""
    processes = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = status.read_text().split(" (", 1)
            processes[int(pid)] = int(rest.rpartition(") ")[2].split()[1])
        except OSError:
            continue
    return [pid for pid in processes if _is_ours(pid, processes) and _title(pid).startswith("ray::Trainer")]


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def start_driver(path: Path, address: str, n_trials: int) -> "subprocess.Popen[bytes]":
    """A process that runs the sweep, or resumes it."""
    command = [sys.executable, str(Path(__file__).resolve()), "--trials", str(n_trials), "--drive", str(path), address]
    return subprocess.Popen(command, cwd=path.parent)


def drive(path: Path, address: str, n_trials: int) -> None:
    """The driver. It records each pack that the loop hands out, but not the replays at the end."""
    import ray
    from rich.console import Console

    from attnsweep import Resources, resume_sweep, run_sweep
    from attnsweep.orchestrator.running.loop import SweepLoop
    from attnsweep.orchestrator.training.messages import PackOrder
    from attnsweep.orchestrator.training.ray_pool import TrainerPool
    from attnsweep.search_spaces import Float, Sweep
    from attnsweep.search_spaces.dimensions import Dimension

    train, run = TrainerPool.train, SweepLoop.run

    def train_and_note(pool: TrainerPool, order: PackOrder) -> None:
        with path.with_suffix(".packs").open("a") as notes:
            notes.write(f"{len(order.tasks)}\n")
        train(pool, order)

    def run_and_note(loop: SweepLoop, should_stop: Callable[[], bool]) -> bool:
        with patch.object(TrainerPool, "train", train_and_note):
            return run(loop, should_stop)

    SweepLoop.run = run_and_note  # type: ignore[assignment,method-assign]
    ray.init(address=address, log_to_driver=False)
    resources = Resources(pack_size=16, checkpoint_seconds=2.0)
    console = Console(stderr=True)
    if (path / "sweep.json").exists():
        resume_sweep(path, resources, console)
        return
    space: dict[str, Dimension] = {
        "n_steps": 2000,
        "stop_when_solved": False,
        "init_sigma": Float(low=1e-3, high=1.0, log=True),
    }
    spec = Sweep(
        name="soak",
        workload="category_pairs",
        space=space,
        sampler="random",
        trials=n_trials,
        replicates=REPLICATES,
    )
    run_sweep(spec, path, resources, console)


def n_rows(path: Path) -> int:
    """Trainings in the ledger so far."""
    from attnsweep.orchestrator.ledger.reader import Ledger
    from attnsweep.workloads.errors import UserError

    try:
        return int(Ledger(path).trainings(columns=["trial"]).num_rows)
    except UserError:
        return 0


def n_handed_out(path: Path) -> int:
    """The number of trainings that the loop has handed out, repetitions included."""
    return sum(map(int, path.with_suffix(".packs").read_text().split()))


def outcomes(path: Path) -> list[dict[str, Any]]:
    """How every training ended."""
    from attnsweep.orchestrator.ledger.reader import Ledger

    columns = ["trial", "replicate", "training_id", "outcome", "final_loss", "eval_loss", "n_steps"]
    rows = Ledger(path).trainings(columns=columns).sort_by([("trial", "ascending"), ("replicate", "ascending")])
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


if __name__ == "__main__":
    main()
