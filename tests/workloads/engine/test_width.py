"""A pack that keeps its width computes copies, which change no result: on a CPU its bits are those of any pack."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.captured import Graphs
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation
from tests.workloads.engine.recorded_graph import RecordedGraph
from tests.workloads.translation.small_translation import SMALL

PAIRS: dict[str, Value] = {"n_categories": 3, "n_positions": 4, "batch_size": 6}
ENDING: dict[str, Value] = PAIRS | {"variant": "positions_only", "optimizer": "adam", "n_steps": 120}
SEARCHED: dict[str, Value] = {"expectation": "fixed_sample", "optimizer": "lbfgs", "n_steps": 30}
STRINGS: dict[str, Value] = {"n_steps": 20, "train_length": 5, "eval_batch_size": 6, "test_batch_size": 4}
CASES: dict[str, tuple[Workload[Any], dict[str, Value], tuple[float, ...]]] = {
    "P, solved at different steps": (CategoryPairs(), ENDING | {"init_sigma": 0.3}, (0.2, 0.1, 0.05)),
    "S3, L-BFGS": (CategoryPairs(), PAIRS | SEARCHED | {"variant": "solution_3"}, (1.0, 0.5, 0.1)),
    "FIRST": (FormalLanguages(), STRINGS | {"language": "first", "longest_test_length": 8}, (1e-3, 1e-2, 0.1)),
    "translation, with heads": (Translation(), SMALL | {"n_steps": 10}, (1e-3, 1e-2, 0.1)),
}


def _pack(name: str, width: int | None, programs: Graphs | None = None) -> Pack[Any]:
    workload, values, rates = CASES[name]
    trainings = [Training(defaults(workload, **values | {"learning_rate": r}), seed) for seed, r in enumerate(rates)]
    return Pack(workload, trainings, width=width, programs=programs)


def _ended(pack: Pack[Any]) -> dict[str, bytes]:
    """All that a pack tells of its trainings, but their times."""
    result, (lanes, state) = pack.train_to_end(9), pack.final_state(np.arange(3))
    assert len(lanes.trainings) == 3
    found = {name: table.tobytes() for name, table in result.evidence.metrics.items()}
    found |= {f"final {name}": value.numpy().tobytes() for name, value in state.items()}
    for probe in result.heads:
        found |= {f"head {probe.step} {name}": _bytes(score) for name, score in probe.heads.scores.items()}
        found[f"lanes {probe.step}"] = probe.lanes.tobytes() + probe.heads.role.tobytes()
    return found | {"steps": result.n_steps.tobytes(), "diverged": result.diverged_step.tobytes()}


def _bytes(scores: NDArray[np.float64]) -> bytes:
    """With one kind of NaN: kernels differ in it."""
    return np.where(np.isnan(scores), np.nan, scores).tobytes()


@pytest.mark.slow
@pytest.mark.sample("P, solved at different steps", "FIRST")
@pytest.mark.parametrize("name", CASES)
def test_copies_change_no_result(name: str) -> None:
    narrow = _ended(_pack(name, None))
    assert _ended(_pack(name, 8)) == narrow
    assert _ended(_pack(name, 5, Graphs(RecordedGraph, 4))) == narrow


@pytest.mark.slow
@pytest.mark.sample("P, solved at different steps")
@pytest.mark.parametrize("name", ["P, solved at different steps", "S3, L-BFGS"])
def test_a_pack_that_keeps_its_width_goes_on_from_its_checkpoint(name: str) -> None:
    workload, whole, begun = CASES[name][0], _ended(_pack(name, 8)), _pack(name, 8)
    begun.advance(100 if workload.name == "category_pairs" and "P" in name else 12)
    trainings = begun._store.all.trainings
    again = Pack.resumed(workload, trainings, begun.checkpoint(), width=8)
    assert _ended(again) == whole
