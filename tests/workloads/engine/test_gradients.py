"""Compiled gradients are those of the vmapped engine. A training's bits depend neither on its group nor on its pack."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.compiling.gradient import GradientProgram, adding, gradient_graph
from attnsweep.workloads.engine.compiling.traces import NoRuleError, operations_of
from attnsweep.workloads.engine.contract import Batch, Training
from attnsweep.workloads.engine.executors.programs import Programs
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults

SEARCHING: dict[str, Any] = {
    "variant": "solution_3",
    "n_categories": 4,
    "n_positions": 9,
    "expectation": "fixed_sample",
    "batch_size": 120,
    "optimizer": "lbfgs",
    "learning_rate": 1.0,
    "n_steps": 12,
    "stop_when_solved": False,
}


def trainings_of(n: int, **settings: Any) -> list[Training[Any]]:
    parameters = defaults(CategoryPairs(), **(SEARCHING | settings))
    return [Training(parameters, seed) for seed in range(n)]


@pytest.mark.slow
@pytest.mark.sample("settings0", "settings1")
@pytest.mark.parametrize("settings", [{}, {"batch_size": 40}, {"optimizer": "adam", "expectation": "sampled"}])
def test_gradients_of_groups_are_those_of_each_lane(settings: dict[str, Any]) -> None:
    """Without the compiler; the last of two groups is not full, and lanes are left out."""
    pack = Pack(CategoryPairs(), trainings_of(13, dtype="float64", **settings))
    pack.advance(3)
    store = pack._store
    graph = gradient_graph(store, store.batch_at(0))
    assert graph.parts.number == (1 if settings.get("batch_size") == 40 else 3)
    add, batch = adding(graph), store.batch_at(0)
    program = GradientProgram(graph.parts, lambda inputs: add(*inputs))
    for lanes in (None, torch.tensor([12, 3, 4, 5, 0, 9, 1, 2, 11])):
        rows = store.rows if lanes is None else store.rows[lanes]
        found = program.descent(rows, store.buffers, batch, lanes)
        loss, gradients = pack._objective.evaluate({ROWS: rows}, 0, lanes)
        torch.testing.assert_close(found, (loss, gradients[ROWS]), rtol=1e-11, atol=1e-13)


class Normed(CategoryPairs):
    """Solution 3 with a layer norm of the values."""

    def loss(self, module: torch.nn.Module, batch: Batch) -> Tensor:
        v_VV = cast(Tensor, module.v_VV)
        return super().loss(module, batch) + torch.nn.functional.layer_norm(v_VV, v_VV.shape[1:])[0].square().sum()


@pytest.mark.scale
@pytest.mark.slow
def test_operations_that_the_compiler_refuses_are_replaced() -> None:
    pack = Pack(Normed(), trainings_of(3, dtype="float64"))
    store = pack._store
    graph = gradient_graph(store, {})
    refused = {torch.ops.prims.broadcast_in_dim.default, torch.ops.prims.var.default}
    assert refused & {node.target for node in operations_of(graph.graph)}
    add, inputs = adding(graph), GradientProgram.examples(graph, store, {})
    assert not refused & {node.target for node in operations_of(make_fx(add)(*inputs))}
    loss, gradients = pack._objective.evaluate({ROWS: store.rows}, 0)
    found = GradientProgram(graph.parts, lambda inputs: add(*inputs)).descent(store.rows, store.buffers, {}, None)
    torch.testing.assert_close(found, (loss, gradients[ROWS]), rtol=1e-11, atol=1e-13)


class Sorting(CategoryPairs):
    """Solution 3 with an operation that is not known to compile."""

    def loss(self, module: torch.nn.Module, batch: Batch) -> Tensor:
        return super().loss(module, batch) + 0.0 * cast(Tensor, module.v_VV).flatten().sort().values.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "settings", "reason"),
    [
        (CategoryPairs(), {"batch_size": 3}, "an evaluation of the loss computes fewer than 100,000 numbers"),
        (CategoryPairs(), {"batch_size": 127}, "the 127 rows of .* cannot be split into equal parts of about 50"),
        (Sorting(), {}, r"the optimizer uses line searches.*aten\.sort\.default cannot be compiled"),
    ],
)
def test_what_is_not_compiled_says_why(workload: CategoryPairs, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(NoRuleError, match=reason):
        Pack(workload, trainings_of(1, **settings)).compiled_graph()


def curves(trainings: list[Training[Any]], programs: Programs | None) -> dict[str, Any]:
    return Pack(CategoryPairs(), trainings, programs=programs).train_to_end(7).evidence.metrics


@pytest.mark.scale
@pytest.mark.parametrize("settings", [{}, {"dtype": "float32"}, {"variant": "combined"}])
def test_bits_depend_neither_on_the_place_in_a_group_nor_on_the_neighbours(
    settings: dict[str, Any], compiled_blocks: None
) -> None:
    programs, trainings = Programs(), trainings_of(11, **settings)
    together = curves(trainings, programs)
    expected = curves(trainings, None)
    np.testing.assert_allclose(together["eval_loss"][:, 0], expected["eval_loss"][:, 0], rtol=1e-5)

    pack = Pack(CategoryPairs(), trainings, programs=programs)
    pack.advance(5)
    resumed = Pack.resumed(CategoryPairs(), trainings, pack.checkpoint(), programs=programs)
    resumed.train_to_end()

    for places, found in (
        (range(10, -1, -1), curves(trainings[::-1], programs)),
        (range(9, 10), curves(trainings[9:10], programs)),
        (range(3, 8), curves(trainings[3:8], programs)),
        (range(11), resumed.result().evidence.metrics),
    ):
        for name, values in found.items():
            np.testing.assert_array_equal(values, together[name][list(places)], err_msg=name)
