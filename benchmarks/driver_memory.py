"""Peak memory of a sweep's driver at 1,000 and 10,000 trials of one step: it must not grow with the trials.

    python benchmarks/driver_memory.py [--trials 1000 10000] [--out benchmarks/driver_memory.json]

Each size runs in a fresh process. `optuna_mebibytes` is what a process with the study alone needs: Optuna keeps every
trial in memory, and we cannot change that.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Measures all sizes and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", choices=["sweep", "study"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        {"sweep": _sweep, "study": _study}[options.part](options.trials[0])
        print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
        return
    rows = [
        {"trials": n_trials, "driver_mebibytes": _peak("sweep", n_trials), "optuna_mebibytes": _peak("study", n_trials)}
        for n_trials in options.trials
    ]
    text = json.dumps({"benchmark": "driver_memory", "cpus": os.cpu_count(), "rows": rows}, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def _peak(part: str, n_trials: int) -> float:
    script = str(Path(__file__).resolve())
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, script, "--part", part, "--trials", str(n_trials)],
            check=True,
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
    return round(float(done.stdout.splitlines()[-1]), 1)


def _spec(n_trials: int):  # type: ignore[no-untyped-def]
    from attnsweep.search_spaces import Float, Sweep

    return Sweep(
        name="memory",
        workload="category_pairs",
        space={"n_steps": 1, "init_sigma": Float(low=1e-4, high=1.0, log=True)},
        sampler="random",
        trials=n_trials,
    )


def _sweep(n_trials: int) -> None:
    from rich.console import Console

    from attnsweep import Resources, run_sweep

    assert run_sweep(_spec(n_trials), Path("sweep"), Resources(), Console(stderr=True)).n_trainings == n_trials


def _study(n_trials: int) -> None:
    from attnsweep.orchestrator.running.study import Study
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    study = Study(SweepDirectory.create(Path("sweep"), _spec(n_trials), {}))
    for _ in range(n_trials):
        study.tell(study.ask().trial, 0.0)


if __name__ == "__main__":
    main()
