"""The same trainings by attnsweep, and by Ray Tune with OptunaSearch and MLflowLoggerCallback: wall time.

    python benchmarks/vs_ray_tune.py [--trainings 1024 4096] [--steps 200] [--out benchmarks/vs_ray_tune.json]

Each side runs in a fresh process: Tune in a program, attnsweep as the command `attnsweep run`. Its time includes the
imports, the start of Ray, the trainings, the study and the logging; the clock stops when the process has ended. Where
Linux lets us count them, `cpu_seconds` are those of all of its processes. One Tune trial is one training, with the
model, loss, steps and search space of the sweep, in plain PyTorch. attnsweep is measured twice: with 16 replicates per
trial, as rates are measured, and with one, so that Optuna and MLflow see as many trials as with Tune.
"""

import argparse
import json
import logging
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from shared.accounting import run_accounted
from shared.system_p import N_CATEGORIES, N_POSITIONS, sweep_of_system_p

SPACE = {"init_sigma": (1e-4, 1.0), "learning_rate": (1e-4, 5e-2)}


def main() -> None:
    """Measures both sides and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", choices=["tune"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        _tune(options.trainings[0], options.steps)
        return
    rows = [_compare(n_trainings, options.steps) for n_trainings in options.trainings]
    report = {
        "benchmark": "vs_ray_tune",
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "steps": options.steps,
        "rows": rows,
    }
    text = json.dumps(report, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def _compare(n_trainings: int, n_steps: int) -> dict[str, object]:
    load, *_ = os.getloadavg()
    program = [sys.executable, str(Path(__file__).resolve())]
    tune: list[str | Path] = [*program, "--side", "tune", "--trainings", str(n_trainings), "--steps", str(n_steps)]
    tune_seconds, tune_cpu = _timed(tune)
    row: dict[str, object] = {"trainings": n_trainings, "tune_seconds": round(tune_seconds, 1)}
    row["tune_cpu_seconds"] = tune_cpu
    row |= {"load_before": round(load, 1), "load_after": round(os.getloadavg()[0], 1)}
    # A report, which Tune has not, is left out.
    attnsweep: list[str | Path] = [
        Path(sys.executable).with_name("attnsweep"),
        "run",
        "spec.yaml",
        "--dir",
        "sweep",
        "--no-report",
    ]
    for replicates in (16, 1):
        course = {"sampler": "tpe", "trials": n_trainings // replicates, "replicates": replicates}
        seconds, cpu = _timed(attnsweep, sweep_of_system_p(n_steps, SPACE, **course).to_yaml())
        row[f"attnsweep_{replicates}_replicates"] = {
            "seconds": round(seconds, 1),
            "cpu_seconds": cpu,
            "times_faster": round(tune_seconds / seconds, 1),
            "load_after": round(os.getloadavg()[0], 1),
        }
    return row


def _timed(command: Sequence[str | Path], spec: str = "") -> tuple[float, float | None]:
    """Wall time and CPU time of a command in a folder that holds nothing but a sweep's spec, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spec.yaml").write_text(spec)
        started = time.perf_counter()
        cpu = run_accounted(command, folder)
        return time.perf_counter() - started, None if cpu is None else round(cpu, 1)


def _tune(n_trainings: int, n_steps: int) -> None:
    import warnings

    warnings.simplefilter("ignore")
    import ray
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    tuner = tune.Tuner(
        _train_one,
        param_space={
            **{name: tune.loguniform(low, high) for name, (low, high) in SPACE.items()},
            "n_steps": n_steps,
        },
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(metric="level", mode="min", seed=0),
            num_samples=n_trainings,
            # Otherwise each trial starts a process and imports torch, which is many times slower.
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="bench",
            storage_path=str(Path("tune").resolve()),
            verbose=0,
            callbacks=[
                MLflowLoggerCallback(tracking_uri=f"sqlite:///{Path('mlflow.db').resolve()}", experiment_name="x")
            ],
        ),
    )
    results = tuner.fit()
    assert len(results) == n_trainings
    assert not results.errors


def _train_one(config: dict[str, float]) -> None:
    from ray import tune

    tune.report({"level": level_after(config["init_sigma"], config["learning_rate"], int(config["n_steps"]))})


def level_after(init_sigma: float, learning_rate: float, n_steps: int) -> float:
    """The level that one training of system P ends at, in plain PyTorch: gradient descent on the population loss."""
    import torch

    torch.set_num_threads(1)
    N, M = N_CATEGORIES, N_POSITIONS
    q = (init_sigma * torch.randn(M, M, dtype=torch.float64)).requires_grad_()
    v = (init_sigma * torch.randn(N, N, dtype=torch.float64)).requires_grad_()
    optimizer = torch.optim.SGD([q, v], lr=learning_rate)
    for _ in range(n_steps):
        optimizer.zero_grad()
        columns = q[:, 1:]
        p, s, n = columns.diagonal(), columns.sum(0), columns.square().sum(0)
        b = v.sum() / N
        a = v.diagonal().sum() - b
        B = v.sum(1).square().sum() / N
        A = v.square().sum() - B
        loss = (1 + (-2 * a * p - 2 * b * s + A * n + B * s.square()) / N).sum()
        loss.backward()
        optimizer.step()
    return float(torch.nan_to_num(loss.detach(), nan=1e12, posinf=1e12)) / (M - 1)


if __name__ == "__main__":
    main()
