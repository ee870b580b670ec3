"""A step that was captured once trains on rightly when it is replayed: with new batches, rates and counters."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

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

PAIRS: dict[str, Value] = {"n_categories": 3, "n_positions": 5, "batch_size": 6, "n_steps": 40}
CHANGING: dict[str, Value] = {
    "learning_rate_schedule": "cosine",
    "warmup_steps": 9,
    "gradient_clip_norm": 0.5,
    "weight_decay": 0.1,
}
STRINGS: dict[str, Value] = {"n_steps": 40, "train_length": 5, "eval_batch_size": 6, "test_batch_size": 4}
CASES: dict[str, tuple[Workload[Any], dict[str, Value]]] = {
    "P, SGD with momentum": (CategoryPairs(), PAIRS | {"variant": "positions_only", "momentum": 0.9}),
    "P, Adam": (CategoryPairs(), PAIRS | {"variant": "positions_only", "optimizer": "adam"}),
    "C, AdamW, rates that change": (
        CategoryPairs(),
        PAIRS | CHANGING | {"variant": "categories_only", "optimizer": "adamw"},
    ),
    "P, sampled": (
        CategoryPairs(),
        PAIRS | {"variant": "positions_only", "optimizer": "adam", "expectation": "sampled"},
    ),
    "FIRST": (FormalLanguages(), STRINGS | CHANGING | {"language": "first", "longest_test_length": 8}),
    "translation": (Translation(), SMALL | {"n_steps": 40}),
}


def _pack(name: str, graphs: Graphs | None) -> Pack[Any]:
    workload, values = CASES[name]
    rates = (1e-3, 1e-2, 0.05)
    trainings = [Training(defaults(workload, **values | {"learning_rate": rates[seed % 3]}), seed) for seed in range(4)]
    return Pack(workload, trainings, programs=graphs)


def _trained(name: str, graphs: Graphs | None) -> Pack[Any]:
    pack = _pack(name, graphs)
    pack.train_to_end(7)
    return pack


@pytest.mark.slow
@pytest.mark.sample("P, Adam-3", "P, Adam-1", "C, AdamW, rates that change-3")
@pytest.mark.parametrize(("name", "n_steps"), [*((name, 3) for name in CASES), ("P, Adam", 1)])
def test_replayed_steps_are_those_of_the_pack_to_the_last_bit(name: str, n_steps: int) -> None:
    graphs: list[RecordedGraph] = []

    def new_graph() -> RecordedGraph:
        graphs.append(RecordedGraph())
        return graphs[-1]

    replayed, plain = _trained(name, Graphs(new_graph, n_steps)), _trained(name, None)
    assert torch.equal(replayed._store._ended_rows, plain._store._ended_rows)
    for metric, table in plain.result().evidence.metrics.items():
        assert replayed.result().evidence.metrics[metric].tobytes() == table.tobytes(), metric
    # The first step of a shape of batch is not replayed, and all others are, as many at a time as come before a probe.
    n_replays = sum(graph.n_replays for graph in graphs)
    if n_steps == 1:
        assert (n_replays, len(graphs)) == (39, 1)
    elif name != "translation":
        assert (n_replays < 30, len(graphs)) == (True, 2)


class _Refusing(RecordedGraph):
    """As CUDA does where a step copies from the host."""

    def capture(self, run: Callable[[], None]) -> None:  # noqa: ARG002
        raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.slow
def test_a_step_that_cannot_be_captured_is_taken_without_a_graph() -> None:
    refused, plain = _trained("P, Adam", Graphs(_Refusing, 3)), _trained("P, Adam", None)
    assert torch.equal(refused._store._ended_rows, plain._store._ended_rows)
