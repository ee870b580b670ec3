"""The graph of one training, computed for a block of trainings, is the graph of each of them."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.compiling.gradient import GradientProgram, gradient_graph, storing
from attnsweep.workloads.engine.compiling.lanes_last import OverLanes, check_rules
from attnsweep.workloads.engine.compiling.traces import NoRuleError, traced
from attnsweep.workloads.engine.contract import Batch, Training
from attnsweep.workloads.engine.executors.programs import Programs
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults

W = 3
ELSEWHERE = torch.ones(4)

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "product": lambda a, b: a @ b.T,
    "product in tiles": lambda a, b: a.tile(4, 4) @ b.tile(4, 4).T / 100,
    "product of odd rows": lambda a, b: a.tile(1, 4) @ b.tile(1, 4).T / 100,
    "batched product": lambda a, b: torch.einsum("ij,kj->ik", a, b) + (a[None] @ b[None].mT)[0],
    "matrix times vector": lambda a, b: a @ b[0],
    "linear with bias": lambda a, b: functional.linear(a, b, b[:, 0]),
    "softmax": lambda a, b: a.softmax(-1) * b.log_softmax(0),
    "layer norm": lambda a, b: functional.layer_norm(a, (4,), b[0], b[1]),
    "means": lambda a, b: a.mean(-1, keepdim=True) + b.mean() + a.var(0) + b.std(),
    "extremes": lambda a, b: a.amax(1, keepdim=True) + b.max() - a.min(),
    "diagonal": lambda a, b: a[:, :3].diagonal() + torch.diagonal(b @ b.T),
    "shapes": lambda a, b: torch.cat([a.flatten(), b.T.reshape(-1)]).view(2, -1).unsqueeze(1).squeeze(1),
    "slices": lambda a, b: a[:, 1:3] + b[::2, -2:].flip(0)[:1] + a.unbind(1)[0][:, None],
    "axes from the end": lambda a, b: a.cumsum(-1) + (b > 0).any(-1, keepdim=True) + a.select(-1, 2)[:, None],
    "parts": lambda a, b: sum(x * y for x, y in zip(a.chunk(2, -1), b.split([2, 2], 1), strict=True))[1:],
    "stack and pad": lambda a, b: functional.pad(torch.stack([a, b], 1), (1, 2)),
    "permute": lambda a, b: torch.stack([a, b]).permute(2, 0, 1).contiguous(),
    "where": lambda a, b: torch.where(a > b, a, b.exp()).clamp(max=1.5),
    "mask": lambda a, b: (a @ b.T).masked_fill(torch.ones(3, 3).triu(1).bool(), float("-inf")).softmax(-1),
    "constants": lambda a, b: a * torch.arange(4.0) + torch.eye(3, 4) + torch.tensor([1.0, 2.0, 3.0, 4.0]) * b,
    "in place": lambda a, b: a.clone().add_(b).mul_(2.0),
    "cumulative sum": lambda a, b: a.cumsum(1) - b.cumsum(0),
    "one number": lambda a, b: a / a.norm() * b[0, 0],
    "embedding": lambda a, b: functional.embedding(torch.tensor([[0, 2], [1, 1]]), a).sum() * b,
    "one-hot": lambda a, b: functional.one_hot(torch.tensor([2, 0, 1]), 3).to(a.dtype) @ a * b,
    "entries": lambda a, b: (
        a.detach()[torch.tensor([0, -1]), torch.tensor([3, 1])].sum() + b.detach()[torch.tensor([1])]
    ),
    "cross entropy": lambda a, b: functional.cross_entropy(a * b, (b[:, 0] > 0).long()) * b,
    "cross entropy by position": lambda a, b: functional.cross_entropy(
        (a * b)[None], (b[None, 0] > 0).long() * 2, ignore_index=0, reduction="none"
    ),
    "entries along an axis": lambda a, b: (
        a.gather(1, (b[:, :2] > 0).long() + 1).square().sum() + b.gather(-2, (a[:2] > 0).long())
    ),
    "written along an axis": lambda a, b: (
        a.scatter(1, (b[:, :1] > 0).long(), 0.5) * b.scatter(0, (a[:1] > 0).long(), a[1:2])
    ),
    "written from a larger source": lambda a, b: a.scatter(1, (b[:, :1] > 0).long(), b.detach()),
    "added from a larger source": lambda a, b: (a * b).scatter_add(1, (b[:, :2] > 0).long(), a.detach()),
    "added along an axis": lambda a, b: (a * b).scatter_add(1, (b[:, :3] > 0).long(), a[:, :3]),
    "gelu": lambda a, b: functional.gelu(a) + functional.relu(b) + torch.tanh(a) + functional.silu(b),
    "attention": lambda a, b: functional.scaled_dot_product_attention(a[None, None], b[None, None], b[None, None])[
        0, 0
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_of_a_block_are_those_of_each_lane(name: str) -> None:
    def value_and_gradients(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gradients = torch.func.grad(lambda a, b: FUNCTIONS[name](a, b).square().sum(), argnums=(0, 1))(a, b)
        return FUNCTIONS[name](a, b), *gradients

    draw = torch.Generator().manual_seed(1)
    a, b = (torch.randn(W, 3, 4, generator=draw) for _ in range(2))
    graph = traced(value_and_gradients, [a[0], b[0]])
    check_rules(graph)
    of_block = OverLanes(graph).run(a.movedim(0, -1), b.movedim(0, -1))
    for lane in range(W):
        for found, expected in zip(of_block, value_and_gradients(a[lane], b[lane]), strict=True):
            own = found.expand(*found.shape[:-1], W)[..., lane]
            assert own.dtype == expected.dtype
            torch.testing.assert_close(own, expected)


def test_tensors_made_on_the_way_are_on_the_device_of_what_is_read() -> None:
    """As the engine `merged` needs it on a GPU. A tensor of another device ends an operation on `meta` too."""

    def looked_up(table: Tensor, index: Tensor, value: Tensor) -> Tensor:
        found = (
            functional.embedding(index, table, padding_idx=0).sum(1) + table.detach()[index[:, 0], index[:, 0]].sum()
        )
        return functional.cross_entropy(found * value, index[:, 0]) + value.scatter_add(1, index, value).sum()

    def loss_and_gradient(table: Tensor, index: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        gradient: Tensor = torch.func.grad(looked_up)(table, index, value)
        return looked_up(table, index, value), gradient

    with torch.device("meta"):
        inputs = [torch.ones(4, 4), torch.ones(3, 2, dtype=torch.int64), torch.ones(3, 4)]
    graph = traced(loss_and_gradient, inputs)
    check_rules(graph)
    for found in OverLanes(graph).run(*(each.unsqueeze(-1).expand(*each.shape, W) for each in inputs)):
        assert found.device.type == "meta"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (torch.func.grad(lambda x: x.view(2, 2).trace()), "aten.index_put.default cannot be compiled"),
        (
            lambda x: x.as_strided((2, 2), (1, 1)),
            "aten.as_strided.default cannot be compiled for several trainings at once, because",
        ),
        (lambda x: x.sort().values, "aten.sort.default cannot be compiled"),
        (
            lambda x: x if x.sum() > 0 else -x,
            r"the training step cannot be traced: it depends on the value of a tensor \(test_lanes_last.py, line \d+",
        ),
        (
            lambda x: x * ELSEWHERE.exp(),
            r"it reads a tensor that is neither in the module nor among the data \(.*ELSEWHERE.*\); make it a buffer",
        ),
        (
            lambda x: x.sum() * torch.tensor([0.5] * 65),
            "a constant tensor of 65 numbers cannot be compiled; make the tensor a buffer",
        ),
        (lambda x: x.sum().gather(0, torch.tensor(0)), "an entry of a tensor without axes"),
        (
            lambda x: x.scatter(0, torch.tensor([0, 1]), 0.5),
            r"aten.scatter.value can be compiled .* of the shapes \(2,\) and \(4,\), agree in all axes but axis 0",
        ),
        (lambda x: x.expand(64, -1) @ x.expand(64, -1).T, None),
        (lambda x: x.expand(64, -1).T @ x.expand(64, -1), None),
        (
            lambda x: x.repeat(64, 16) @ x.repeat(64, 16).T,
            "matrix products, such as 64x64x64, are faster in the engine",
        ),
        (
            lambda x: functional.embedding(torch.tensor([1]), x.expand(65, -1)),
            "an embedding table of 65 rows is slow if it is compiled",
        ),
    ],
)
def test_what_has_no_rule_is_named(function: Callable[[Tensor], Tensor], reason: str | None) -> None:
    def check() -> None:
        check_rules(traced(function, [torch.ones(4)]))

    if reason is None:
        check()
    else:
        with pytest.raises(NoRuleError, match=reason):
            check()


def _loss(x: Tensor) -> Tensor:
    return (x.softmax(-1).log() * x.tanh()).sum()


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
@pytest.mark.parametrize("settings", [{}, {"optimizer": "adam", "expectation": "sampled"}])
def test_a_gradient_taken_alone_is_that_of_the_pack(settings: dict[str, Any]) -> None:
    """Without the compiler, and with lanes left out."""
    pack = Pack(CategoryPairs(), trainings_of(13, dtype="float64", **settings))
    pack.advance(3)
    store = pack._store
    graph = gradient_graph(store, store.batch_at(0))
    store_at, batch = storing(graph), store.batch_at(0)
    program = GradientProgram(lambda inputs: store_at(*inputs))
    for lanes in (None, torch.tensor([12, 3, 4, 5, 0, 9, 1, 2, 11])):
        rows = store.rows if lanes is None else store.rows[lanes]
        found = program.descent(rows, store.buffers, batch, lanes)
        loss, gradients = pack._objective.evaluate({ROWS: rows}, 0, lanes)
        torch.testing.assert_close(found, (loss, gradients[ROWS]), rtol=1e-11, atol=1e-13)


class Sorting(CategoryPairs):
    """Solution 3 with an operation that is not known to compile."""

    def loss(self, module: torch.nn.Module, batch: Batch) -> Tensor:
        return super().loss(module, batch) + 0.0 * cast(Tensor, module.v_VV).flatten().sort().values.sum()


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
