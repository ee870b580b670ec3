"""Small sweeps for fault tests, and the values that must be equal to those of an undisturbed sweep."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.running.study import read_trials
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import HandedBack, PackOrder, Report, StillTraining, TrainerLost
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.search_spaces import Categorical, Float, Sweep
from attnsweep.workloads.engine.pack import Pack

ON_RAY = {"local": False, "n_trainers": 1}
"""One trainer on the running Ray; only one, because each takes seconds to start."""
OUTCOME = ["trial", "replicate", "training_id", "seed", "outcome", "final_loss", "eval_loss", "n_steps", "onset_step"]


def small_sweep(**changes: Any) -> Sweep:
    """8 trials x 4 trainings of a few milliseconds each."""
    spec = Sweep(
        name="small",
        workload="category_pairs",
        space={
            "n_steps": 10,
            "n_categories": 3,
            "n_positions": 5,
            "optimizer": Categorical(choices=("sgd", "adam")),
            "init_sigma": Float(low=1e-3, high=1.0, log=True),
        },
        sampler="random",
        trials=8,
        replicates=4,
        seed=5,
    )
    return spec.but(**changes)


def long_sweep(**changes: Any) -> Sweep:
    """2 trials x 2 trainings, each of ten slices of a `sliced` trainer."""
    space = {"n_steps": 250, "n_categories": 3, "n_positions": 5, "init_sigma": Float(low=0.1, high=1.0)}
    return small_sweep(space=space | {"stop_when_solved": False}, trials=2, replicates=2).but(**changes)


def sliced(base: type[Trainer] = Trainer) -> type[Trainer]:
    """A trainer that reports after every 25 steps, however fast the machine, and returns the state of every pack."""

    class Sliced(base):  # type: ignore[misc, valid-type]
        """A local class, which Ray sends to its workers by value."""

        def _train_slice(self, pack: Pack[Any]) -> None:
            pack.advance(25)

        def hand_back(self) -> HandedBack:
            self._started = float("-inf")
            handed: HandedBack = super().hand_back()
            return handed

    return Sliced


def run(spec: Sweep, path: PlaceName, **resources: Any) -> Summary:
    """Runs a new sweep in this process, unless resources say otherwise."""
    return run_sweep(spec, path, Resources(**{"local": True, **resources}), Console(stderr=True))


def resume(path: PlaceName, **resources: Any) -> Summary:
    """Resumes the sweep in this process, unless resources say otherwise."""
    return resume_sweep(path, Resources(**{"local": True, **resources}), Console(stderr=True))


def outcomes(path: Path) -> list[dict[str, Any]]:
    """The trainings and their results, which must be the same however often the sweep was disturbed."""
    keys = [("trial", "ascending"), ("replicate", "ascending")]
    rows: list[dict[str, Any]] = Ledger(path).trainings(columns=OUTCOME).sort_by(keys).to_pylist()
    return rows


def curves(path: Path) -> list[dict[str, Any]]:
    """All values of the curves."""
    keys = [(name, "ascending") for name in ("trial", "replicate", "metric", "step")]
    table = Ledger(path).connect().sql("select trial, replicate, metric::varchar as metric, step, value from curves")
    rows: list[dict[str, Any]] = table.to_arrow_table().sort_by(keys).to_pylist()
    return rows


def told(path: Path) -> list[tuple[int, dict[str, Any], float | None]]:
    """Each trial in Optuna's study: parameters, state and value."""
    return [(each.number, each.params, each.value) for each in read_trials(SweepDirectory.open(path))]


def after_commit(number: int, action: Callable[[], object]) -> Callable[..., None]:
    """The loop's commit, which calls `action` at the end of its `number`th call."""
    commit, n_called = SweepLoop._commit, 0

    def commit_and_act(loop: SweepLoop, *arguments: Any) -> None:
        nonlocal n_called
        commit(loop, *arguments)
        n_called += 1
        if n_called == number:
            action()

    return commit_and_act


def interrupt_after(n_commits: int) -> Callable[..., None]:
    """The loop's commit, which sends this process a Ctrl-C at the end of its `n_commits`th call."""
    return after_commit(n_commits, lambda: os.kill(os.getpid(), signal.SIGINT))


def after_slices(number: int, action: Callable[[], object]) -> Callable[..., None]:
    """The loop's handling of reports, which calls `action` after the `number`th slice reported."""
    receive, n_heard = SweepLoop._receive, 0

    def receive_and_act(loop: SweepLoop, order: PackOrder, report: Report | TrainerLost) -> None:
        nonlocal n_heard
        receive(loop, order, report)
        if isinstance(report, StillTraining):
            n_heard += 1
            if n_heard == number:
                action()

    return receive_and_act
