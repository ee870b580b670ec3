"""The same trainings by attnsweep and by other tools: wall seconds and CPU seconds of whole processes.

    python benchmarks/vs_others.py [--sides ray_tune attnsweep_16 attnsweep_1 optuna attnsweep_local syne_tune]
        [--trainings 1024 4096] [--steps 200] [--out FILE.json]

Trainings of system P in the same search space. Each side runs in a fresh process; the clock stops when it has ended.
Imports, the start of Ray, the study and the logging count.

- `ray_tune`: OptunaSearch and MLflowLoggerCallback; a trial is one training in plain PyTorch.
- `attnsweep_16`, `attnsweep_1`: the command `attnsweep run` with 16 replicates a trial, as for rates of outcomes, and
  with one, so that Optuna has as many trials as with Tune, and MLflow too, up to 500. No report is written, as Tune
  writes none.
- `optuna`: `study.optimize` with TPE and a journal, in one process.
- `syne_tune`: if it is installed, its local backend, which starts a process per trial, on a sixteenth of the fewest
  trainings.
- `attnsweep_local`: in one process, one replicate a trial; it also writes its ledger and report, and MLflow.
"""

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness import Spent, apart, attnsweep_command, chosen, main, spent_by
from shared import system_p
from shared.system_p import level_after, run_tune, start_ray, sweep_of_system_p

SPACE = {"init_sigma": (1e-4, 1.0), "learning_rate": (1e-4, 5e-2)}
SYNE_TUNE_SHARE = 16
SIDES: tuple[str, ...] = ("ray_tune", "attnsweep_16", "attnsweep_1", "optuna", "attnsweep_local")
SIDES += ("syne_tune",) if find_spec("syne_tune") else ()


def measure(
    *, sides: tuple[str, ...] = SIDES, trainings: tuple[int, ...] = (1024, 4096), steps: int = 200
) -> dict[str, Any]:
    """Measures all sides, those of one size one after the other."""
    rows: list[dict[str, Any]] = []
    named = chosen(SIDES, sides)
    for n in trainings:
        of_size = [_row(side, n, steps) for side in named if side != "syne_tune"]
        for row in of_size:
            row["times_ray_tune"] = round(of_size[0]["seconds"] / row["seconds"], 1) if "ray_tune" in named else None
        rows += of_size
    if "syne_tune" in named:
        rows.append(_row("syne_tune", max(min(trainings) // SYNE_TUNE_SHARE, 1), steps))
    return {"steps": steps, "rows": rows}


def _row(side: str, n_trainings: int, n_steps: int) -> dict[str, Any]:
    in_a_program = {each.__name__: each for each in (ray_tune, optuna, attnsweep_local, syne_tune)}
    if side in in_a_program:
        _, spent = apart(in_a_program[side], n_trainings=n_trainings, n_steps=n_steps)
    else:
        spent = _attnsweep(n_trainings, n_steps, int(side.removeprefix("attnsweep_")))
    return {
        "side": side,
        "trainings": n_trainings,
        **spent.figures(),
        "cpu_seconds_per_training": round(spent.cpu_seconds / n_trainings, 4),
        "load_after": round(os.getloadavg()[0], 1),
    }


def _attnsweep(n_trainings: int, n_steps: int, replicates: int) -> Spent:
    spec = sweep_of_system_p(n_steps, SPACE, sampler="tpe", trials=n_trainings // replicates, replicates=replicates)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spec.json").write_text(spec.to_json())
        return spent_by(attnsweep_command("run", "spec.json", "--dir", "sweep", "--no-report"), folder)


def attnsweep_local(n_trainings: int, n_steps: int) -> None:
    """A whole sweep in this process."""
    from attnsweep import Resources, run_sweep

    spec = sweep_of_system_p(n_steps, SPACE, sampler="tpe", trials=n_trainings, replicates=1)
    run_sweep(spec, Path("sweep"), Resources(local=True))


def optuna(n_trainings: int, n_steps: int) -> None:
    """`study.optimize`."""
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: optuna.Trial) -> float:
        values = {name: trial.suggest_float(name, low, high, log=True) for name, (low, high) in SPACE.items()}
        return level_after(**values, n_steps=n_steps)

    storage = JournalStorage(JournalFileBackend("study.journal"))
    optuna.create_study(storage=storage, sampler=optuna.samplers.TPESampler(seed=0)).optimize(objective, n_trainings)


def syne_tune(n_trainings: int, n_steps: int) -> None:
    """One process per trial."""
    os.environ["SYNETUNE_FOLDER"] = str(Path.cwd())
    from syne_tune import StoppingCriterion, Tuner
    from syne_tune.backend import LocalBackend
    from syne_tune.config_space import loguniform
    from syne_tune.optimizer.baselines import RandomSearch

    space = {**{name: loguniform(low, high) for name, (low, high) in SPACE.items()}, "n_steps": n_steps}
    Tuner(
        trial_backend=LocalBackend(entry_point=str(Path(system_p.__file__).resolve())),
        scheduler=RandomSearch(space, metrics=["level"], random_seed=0),
        stop_criterion=StoppingCriterion(max_num_trials_finished=n_trainings),
        n_workers=1,
        sleep_time=0.1,
        results_update_interval=60,
    ).run()


def ray_tune(n_trainings: int, n_steps: int) -> None:
    """Ray Tune, on a Ray of its own."""
    start_ray()
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    def train_one(config: dict[str, float]) -> None:
        tune.report({"level": level_after(config["init_sigma"], config["learning_rate"], n_steps)})

    space = {name: tune.loguniform(low, high) for name, (low, high) in SPACE.items()}
    logger = MLflowLoggerCallback(tracking_uri=os.environ["MLFLOW_TRACKING_URI"], experiment_name="x")
    search = OptunaSearch(metric="level", mode="min", seed=0)
    results = run_tune(train_one, space, logger, search_alg=search, num_samples=n_trainings)
    assert len(results) == n_trainings


if __name__ == "__main__":
    main(measure)
