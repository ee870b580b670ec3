"""The same trainings without a cluster: CPU seconds of Optuna's own loop, Syne Tune's local backend and attnsweep.

    python benchmarks/vs_local_loops.py [--trainings 256 1024] [--steps 200] [--out benchmarks/vs_local_loops.json]

Each side runs in a fresh process; counted is the CPU time of all its processes, imports and study included. A trial is
one training. Optuna and Syne Tune train with the plain PyTorch loop of `vs_ray_tune.py`, in one process and in one
process per trial, which is what their loops do. attnsweep also writes its ledger, and MLflow. Syne Tune is measured if
it is installed, on a sixteenth of the fewest trainings.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from shared.system_p import sweep_of_system_p
from vs_ray_tune import SPACE, level_after

_SYNE_TUNE_SHARE = 16


def main() -> None:
    """Measures the sides and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", choices=_SIDES, help=argparse.SUPPRESS)
    # What Syne Tune calls this script with, once per trial.
    for name in SPACE:
        parser.add_argument(f"--{name}", type=float, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args()
    if options.side is not None:
        _SIDES[options.side](options.trainings[0], options.steps)
        return
    if options.init_sigma is not None:
        _trial(options.init_sigma, options.learning_rate, options.steps)
        return
    fewest = min(options.trainings)
    cases = [(side, n) for n in options.trainings for side in ("optuna", "attnsweep")]
    if find_spec("syne_tune"):
        cases.append(("syne_tune", max(fewest // _SYNE_TUNE_SHARE, 1)))
    report = {
        "benchmark": "vs_local_loops",
        "machine": platform.machine(),
        "load": round(os.getloadavg()[0], 1),
        "steps": options.steps,
        "rows": [_measured(side, n_trainings, options.steps) for side, n_trainings in cases],
    }
    text = json.dumps(report, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def _measured(side: str, n_trainings: int, n_steps: int) -> dict[str, object]:
    command = [sys.executable, str(Path(__file__).resolve()), "--side", side]
    command += ["--trainings", str(n_trainings), "--steps", str(n_steps)]
    before = _cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, check=True, cwd=folder, env={**os.environ, "SYNETUNE_FOLDER": folder})
    seconds = _cpu_seconds() - before
    return {
        "side": side,
        "trainings": n_trainings,
        "cpu_seconds": round(seconds, 1),
        "cpu_seconds_per_training": round(seconds / n_trainings, 4),
    }


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _optuna(n_trainings: int, n_steps: int) -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: optuna.Trial) -> float:
        values = {name: trial.suggest_float(name, low, high, log=True) for name, (low, high) in SPACE.items()}
        return level_after(**values, n_steps=n_steps)

    storage = JournalStorage(JournalFileBackend("study.journal"))
    optuna.create_study(storage=storage, sampler=optuna.samplers.TPESampler(seed=0)).optimize(objective, n_trainings)


def _syne_tune(n_trainings: int, n_steps: int) -> None:
    from syne_tune import StoppingCriterion, Tuner
    from syne_tune.backend import LocalBackend
    from syne_tune.config_space import loguniform
    from syne_tune.optimizer.baselines import RandomSearch

    space = {**{name: loguniform(low, high) for name, (low, high) in SPACE.items()}, "steps": n_steps}
    Tuner(
        trial_backend=LocalBackend(entry_point=str(Path(__file__).resolve())),
        scheduler=RandomSearch(space, metrics=["level"], random_seed=0),
        stop_criterion=StoppingCriterion(max_num_trials_finished=n_trainings),
        n_workers=1,
        sleep_time=0.1,
        results_update_interval=60,
    ).run()


def _trial(init_sigma: float, learning_rate: float, n_steps: int) -> None:
    from syne_tune import Reporter

    Reporter()(level=level_after(init_sigma, learning_rate, n_steps))


def _attnsweep(n_trainings: int, n_steps: int) -> None:
    from attnsweep import Resources, run_sweep

    spec = sweep_of_system_p(n_steps, SPACE, sampler="tpe", trials=n_trainings, replicates=1)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{Path('mlflow.db').resolve()}"
    run_sweep(spec, Path("sweep"), Resources(local=True))


_SIDES = {"optuna": _optuna, "syne_tune": _syne_tune, "attnsweep": _attnsweep}


if __name__ == "__main__":
    main()
