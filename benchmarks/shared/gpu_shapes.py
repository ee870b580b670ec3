"""The shapes of packs that `gpu.py` measures."""

from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.graphs import Graphs
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation

ENDLESS: dict[str, Any] = {"n_steps": 10**7, "stop_when_solved": False, "learning_rate": 1e-3, "init_sigma": 0.05}
STRINGS: dict[str, Any] = {"n_epochs": 4, "steps_per_epoch": 2048, "eval_batch_size": 1, "test_batch_size": 1}


@dataclass(frozen=True)
class Shape:
    """One shape to measure.

    Attributes:
        workload: Its problem.
        settings: Parameters of its trainings, in turn.
        most_steps: The steps that all its trainings take before the first may end.
    """

    workload: Workload[Any]
    settings: list[dict[str, Any]]
    most_steps: int = 10**6

    def trainings(self, size: int) -> list[Training[Any]]:
        """So many trainings."""
        return [
            Training(defaults(self.workload, **each), seed)
            for seed, each in enumerate(islice(cycle(self.settings), size))
        ]


def unprobed(workload: Workload[Any]) -> Workload[Any]:
    """The same problem, probed at both ends only: its steps are measured."""

    class Unprobed(type(workload)):  # type: ignore[misc]
        def probe_steps(self, parameters: TrainingParameters) -> tuple[int, ...]:
            return 0, parameters.n_steps

    found: Workload[Any] = Unprobed()
    return found


PAIRS = CategoryPairs()
SHAPES = {
    "system P, float64": Shape(PAIRS, [ENDLESS | {"variant": "positions_only"}]),
    "system C, float64": Shape(PAIRS, [ENDLESS | {"variant": "categories_only"}]),
    "FIRST, lengths 10 to 300": Shape(
        FormalLanguages(),
        [
            STRINGS | {"language": "first", "train_length": n, "test_ladder": False, "stop_when_solved": False}
            for n in (10, 30, 100, 300)
        ],
    ),
    "solution 3, L-BFGS, float64": Shape(
        PAIRS,
        [
            {"variant": "solution_3", "expectation": "fixed_sample", "batch_size": 50, "optimizer": "lbfgs"}
            | {"n_steps": 10**6, "stop_when_solved": False}
        ],
        most_steps=36,
    ),
    "translation, float32": Shape(
        Translation(),
        [{"n_sentences": 200, "eval_sentences": 8, "head_sentences": 0, "test_sentences": 4, "n_steps": 10**7}],
    ),
}


def ways(name: str) -> list[str]:
    """How a shape's kernels can be launched. Steps that search along lines differ, so they have no graph."""
    searches = any(each.get("optimizer") == "lbfgs" for each in SHAPES[name].settings)
    return ["eager"] if searches else ["eager", "graphs"]


def pack_of(shape: Shape, size: int, device: str, how: str) -> Pack[Any]:
    return Pack(unprobed(shape.workload), shape.trainings(size), device, programs=Graphs() if how == "graphs" else None)
