"""Writes the golden sweeps of the version that is installed: python tests/golden/write.py tests/golden/VERSION NAME...

NAME is `finished`, `interrupted` or `own`. `0.1.0/interrupted` was written by this file too, with the code of 0.1.0
first in PYTHONPATH; `0.1.0/finished` by the command that its `sweep.json` records.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from rich.console import Console

from attnsweep import Categorical, Ledger, Sweep
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.training import local_pool
from attnsweep.orchestrator.training.messages import HandedBack, Progress
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.engine.pack import Pack

CONSOLE = Console(stderr=True)
LOCAL = Resources(local=True, pack_size=4)
N_PROGRESS = 3
"""Of two in each pack: one pack is trained then, and the second is under way."""
OWN = """
from attnsweep import Float, Sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from own_names import NAME

class Own(CategoryPairs):
    name = NAME

def sweep():
    space = {"n_steps": 75, "n_categories": 3, "n_positions": 4, "init_sigma": Float(low=1e-3, high=1.0, log=True)}
    return Sweep(name="own", workload="own.py:Own", space=space, sampler="random", trials=4, replicates=4)
"""


class Sliced(Trainer):
    """Reports after every 25 steps, and returns the state of every pack."""

    def _train_slice(self, pack: Pack[Any]) -> None:
        pack.advance(25)

    def hand_back(self) -> HandedBack:
        self._started = float("-inf")
        handed: HandedBack = super().hand_back()  # type: ignore[assignment]  # a report in general
        return handed


def _lengths() -> Sweep:
    """Adam and random trials, with heads and conditions on lengths."""
    sweep = load_sweep("first_lengths").but(trials=4, replicates=4)
    sweep = sweep.but(space={**sweep.space, "train_length": Categorical(choices=(3, 6, 10))})
    small = {"n_layers": 1, "n_heads": 1, "d_model": 8, "d_ffn": 16, "longest_test_length": 20}
    return sweep.fix({**small, "batch_size": 4, "n_steps": 75, "eval_batch_size": 20, "test_batch_size": 10})


def _own(folder: Path) -> Sweep:
    (folder / "own.py").write_text(OWN)
    (folder / "own_names.py").write_text('NAME = "own"\n')
    return load_sweep(str(folder / "own.py"))


def _interrupt(sweep: Sweep, path: Path) -> None:
    """Runs the sweep until its second pack is under way."""
    receive, n_left = SweepLoop._receive, N_PROGRESS

    def receive_and_interrupt(loop: SweepLoop, order: Any, report: Any) -> None:
        nonlocal n_left
        receive(loop, order, report)
        if isinstance(report, Progress):
            n_left -= 1
            if n_left == 0:
                os.kill(os.getpid(), signal.SIGINT)

    with (
        mock.patch.object(SweepLoop, "_receive", receive_and_interrupt),
        mock.patch.object(local_pool, "Trainer", Sliced),
    ):
        assert not run_sweep(sweep, path, LOCAL, CONSOLE).finished


def _ends(path: Path) -> dict[str, list[str]]:
    """The training_id and outcome of each training, by TRIAL/REPLICATE."""
    rows = sorted(Ledger(path).trainings().to_pylist(), key=lambda row: (row["trial"], row["replicate"]))
    return {f"{row['trial']}/{row['replicate']}": [row["training_id"], row["outcome"]] for row in rows}


def write(place: Path, name: str, scratch: Path) -> None:
    """Writes one sweep, and what it holds in the end."""
    path = place / name
    shutil.rmtree(path, ignore_errors=True)
    if name == "finished":
        sweep = load_sweep("quickstart").fix({"n_steps": 60}).but(trials=4, replicates=4)
        assert run_sweep(sweep, path, Resources(local=True, pack_size=8), CONSOLE).finished
        ended = path
    else:
        _interrupt(_own(scratch) if name == "own" else _lengths(), path)
        ended = Path(shutil.copytree(path, scratch / "resumed"))
        assert resume_sweep(ended, LOCAL, CONSOLE).finished
    file = place / "expected.json"
    expected = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(expected | {name: _ends(ended)}, indent=1) + "\n")


if __name__ == "__main__":
    # No MLflow is needed.
    os.environ["MLFLOW_TRACKING_URI"] = "sqlite:////dev/null/mlflow.db"
    for each in sys.argv[2:]:
        with TemporaryDirectory() as folder:
            write(Path(sys.argv[1]).resolve(), each, Path(folder))
