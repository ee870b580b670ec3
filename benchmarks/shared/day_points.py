"""The trainings of `gpu_day.py`, as their sweeps' samplers draw them: a machine without Optuna reads them in a file.

    PYTHONPATH=benchmarks python -m shared.day_points

writes `gpu_day_points.json` anew. No shipped sweep that is named here learns from results, so its trials are functions
of its seed and their number: a longer sweep begins with those of a shorter one.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from attnsweep.orchestrator.training.tasks import Task, training_seed
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.translation import Translation

FILE = Path(__file__).parents[1] / "gpu_day_points.json"
TRIALS = {"quickstart": 1024, "chiang_fig4": 8, "stuck_full": 512, "mission_pairs": 256, "head_roles": 128}
"""How many of each sweep are in the file."""
_WORKLOADS: dict[str, Workload[Any]] = {each.name: each for each in (CategoryPairs(), FormalLanguages(), Translation())}


@dataclass(frozen=True)
class Points:
    """The trials of a sweep.

    Attributes:
        workload: The name of its workload.
        seed: Of the sweep.
        certified_share: As the sweep has it.
        fixed: Parameters that all trials share.
        drawn: By parameter, the value of each trial.
    """

    workload: str
    seed: int
    certified_share: float
    fixed: Mapping[str, Any]
    drawn: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, sweep: str) -> Self:
        """Those in the file."""
        return cls(**json.loads(FILE.read_text())[sweep])

    @property
    def problem(self) -> Workload[Any]:
        """The workload."""
        return _WORKLOADS[self.workload]

    def tasks(self, trials: int, replicates: int, **changed: Any) -> Iterator[Task]:
        """The trainings of the first trials, as `attnsweep run --trials --replicates --set` makes them."""
        declared = self.problem.parameters.declared()
        for trial in range(trials):
            values = {name: column[trial] for name, column in self.drawn.items()}
            defaults = {name: each.default for name, each in declared.items()}
            parameters = self.problem.parameters.resolve({**defaults, **self.fixed, **values, **changed})
            for replicate in range(replicates):
                training = Training(parameters, training_seed(self.seed, trial, replicate))
                yield Task(trial, replicate, training, self.certified_share)


def drawn_points(name: str, trials: int) -> Points:
    """The first trials of a shipped sweep, as its study draws them."""
    from attnsweep.orchestrator.running.study import Study
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.search_spaces.loading import load_sweep

    spec = load_sweep(name)
    declared = _WORKLOADS[spec.workload].parameters.declared()
    with tempfile.TemporaryDirectory() as folder:
        study = Study(SweepDirectory.create(Path(folder, "sweep"), spec.but(trials=trials), {}))
        asked = [study.ask(trials).values for _ in range(trials)]
    fixed = spec.fixed()
    # A conditional parameter that a trial has not keeps its default.
    names = [name for name in spec.parameters() if name not in fixed]
    drawn = {name: [values.get(name, declared[name].default) for values in asked] for name in names}
    return Points(spec.workload, spec.seed, spec.certified_share, fixed, drawn)


if __name__ == "__main__":
    lines = [f'"{name}": {json.dumps(vars(drawn_points(name, trials)))}' for name, trials in TRIALS.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
