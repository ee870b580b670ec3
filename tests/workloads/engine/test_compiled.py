"""A compiled step computes what PyTorch computes, and a training's bits depend on no other."""

import contextlib
import stat
from collections.abc import Callable, Sequence
from functools import partial, partialmethod
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attnsweep.orchestrator.tools.look_back import look_back
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.compiling import programs as compiling
from attnsweep.workloads.engine.compiling.building import compiled_engine
from attnsweep.workloads.engine.compiling.programs import Programs, source_of
from attnsweep.workloads.engine.compiling.tracing import Trace, traced
from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.executors import NoCompilerError, NoRuleError
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.testing import defaults
from tests.workloads.engine.any_module import AnyModule

pytestmark = pytest.mark.usefixtures("compiled")

L = 11
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
    "slices": lambda a, b: a[:, 1:3] + b[::2, -2:][:1] + a.unbind(1)[0][:, None],
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
    "sums over axes": lambda a, b: a.sum(0) * b.sum(1)[:, None] + (a[None] * b[:, None]).sum((0, 2))[:, None],
    "products along axes": lambda a, b: a.prod(1)[:, None] + b.amax((0, 1)) + (a > 0).all() + (b > 9).any(0),
    "trace": lambda a, b: a[:, :3].trace() * b,
    "entries of entries": lambda a, b: (
        a.index_put((torch.tensor([0, 2]), torch.tensor([1, -1])), b[0, :2]) + b[torch.tensor([[0, 1], [2, 0]])].sum()
    ),
    "sorted": lambda a, b: a.sort(-1).values * b.sort(0, descending=True).values + b.argmax(1)[:, None],
    "largest": lambda a, b: a.topk(2, -1).values + b.max(-1, keepdim=True).values - a.min(0).values[:2],
    "repeated": lambda a, b: a.repeat(2, 1)[1:4] * b.roll(1, 1),
    "functions": lambda a, b: a.sin() + b.cos() + a.abs().log1p() + a.expm1() + b.erf() + a.atan() + (a * a).rsqrt(),
    "whole numbers": lambda a, b: (a * 4).floor().long().remainder(3) + (b * 3).trunc() + a.round(),
    "sums of one number": lambda a, b: b / a[:, :1].exp().sum(-1, keepdim=True) + a[0, 0].softmax(0) + a[:0].sum(0),
    "bytes": lambda a, b: ~(a.abs() * 60).to(torch.uint8) * b + ((b.abs() * 90).to(torch.uint8) + 200).amax(),
    "added masks": lambda a, b: ((a > 0) + (b > 0)).sum() * b,
    "of infinity": lambda a, b: (a * torch.where(b > 0, torch.inf, 1.0)).relu().clamp(max=1.0) + (a / 0).sign(),
    "rounded": lambda a, b: a.round(decimals=1) + b,
    "of no numbers": lambda a, b: (a[:0].mean().isnan() + a[:, :0] @ b[:0, :]) + b,
    "NaN among numbers": lambda a, b: (
        torch.where(a > 0, torch.nan, a).max(-1, keepdim=True).values.nan_to_num(9) * b
        + torch.where(a > 0, torch.nan, a).sort(-1).values.nan_to_num(9)
        + torch.where(a > 0, torch.nan, a).argmin(-1, keepdim=True)
    ),
    "entries of ranges": lambda a, b: (
        torch.arange(4.0)[(b > 0).long()] * a + torch.eye(4)[(b[:, 0] > 0).long()] + a.gather(0, (b > 0).long())
    ),
    "decomposed in place": lambda a, b: (
        functional.rms_norm(a, (4,), b[0])
        + functional.cross_entropy(a * b, (b[:, 0] > 0).long(), torch.arange(4.0), ignore_index=0, label_smoothing=0.1)
        + functional.cosine_similarity(a, b, -1)[:, None]
    ),
    "a large constant": lambda a, b: a * torch.linspace(0, 1, 1200).view(300, 4)[297:] + b,
    "a long table": lambda a, b: functional.embedding(torch.tensor([70, 3, 3]), a.repeat(30, 1)) * b,
    "a large product": lambda a, b: (a.repeat(17, 16) @ b.repeat(17, 16).T)[:3, :4] / 100,
}


def _squared(function: Callable[..., Tensor], a: Tensor, b: Tensor) -> Tensor:
    return function(a, b).square().sum()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 8])
def test_values_and_gradients_of_operations_are_those_of_pytorch(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "width_of", lambda _: width)

    def values_and_gradients(a: Tensor, b: Tensor) -> list[Tensor]:
        found = []
        for function in FUNCTIONS.values():
            value = function(a, b)
            gradients = torch.func.grad(partial(_squared, function), argnums=(0, 1))(a, b)
            found += [value.to(a.dtype), *gradients]
        return [each.unsqueeze(0) for each in found]

    draw = torch.Generator().manual_seed(1)
    a, b = (torch.randn(L, 3, 4, generator=draw) for _ in range(2))
    expected = [values_and_gradients(a[lane], b[lane]) for lane in range(L)]

    def of_one(a: Tensor, b: Tensor) -> list[Tensor]:
        return values_and_gradients(a[0], b[0])

    graph = traced(of_one, [a[:1], b[:1]])
    program = compiling._Compiled(
        Trace(graph, (ROWS, "batch/b"), tuple(map(str, range(len(expected[0])))), (a[:1], b[:1]))
    )
    results = [torch.empty(L, *each.shape[1:]) for each in expected[0]]
    program._call([a, *results], [[b]])
    for number, found in enumerate(results):
        name = [*FUNCTIONS][number // 3]
        assert torch.allclose(found, torch.cat([each[number] for each in expected]), atol=1e-5, equal_nan=True), name


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.cumsum(0).logcumsumexp(0), r"the operation aten\.logcumsumexp\.default cannot be compiled"),
        (
            lambda x: x if x.sum() > 0 else -x,
            r"the training step cannot be traced: it depends on the value of a tensor \(test_compiled.py, line \d+",
        ),
        *(
            (lambda x, divide=divide: divide(torch.arange(4), x.long()) * x, "divided by those of a tensor")
            for divide in (torch.remainder, partial(torch.div, rounding_mode="trunc"))
        ),
        (lambda x: x * ELSEWHERE.exp(), r"it reads a tensor that is neither in the module nor among the data"),
    ],
)
def test_what_cannot_be_compiled_is_named(function: Callable[[Tensor], Tensor], reason: str) -> None:
    with pytest.raises(NoRuleError, match=reason):
        source_of(Trace(traced(lambda x: [function(x)], [torch.ones(4)]), (ROWS,), ("x",), ()), 1)


SMALL_P: dict[str, Any] = {"variant": "positions_only", "n_categories": 3, "n_positions": 5, "n_steps": 40}
SMALL_LANGUAGE: dict[str, Any] = {
    "train_length": 5,
    "n_epochs": 2,
    "steps_per_epoch": 4,
    "eval_batch_size": 2,
    "test_batch_size": 1,
    "stop_when_solved": False,
}
# Biases are drawn, too: of keys their true gradient is 0, so that otherwise all of their digits would be rounding.
SMALL_EXAMPLE: dict[str, Any] = {"n_steps": 20, "dtype": "float32", "stop_when_solved": False, "init_sigma": None}
SMALL_GPT: dict[str, Any] = {"batch_size": 3, "eval_batch_size": 4, "d_model": 6, "d_ffn": 7, "n_steps": 40}


SHAPES: dict[str, tuple[Workload[Any], dict[str, Any]]] = {
    "P": (CategoryPairs(), SMALL_P),
    "P softmax, momentum, decay": (
        CategoryPairs(),
        SMALL_P | {"attention_activation": "softmax", "momentum": 0.9, "weight_decay": 0.1},
    ),
    "P sampled": (CategoryPairs(), SMALL_P | {"expectation": "sampled", "batch_size": 3}),
    "P float32, adamw, clipped, warmup": (
        CategoryPairs(),
        SMALL_P
        | {"dtype": "float32", "optimizer": "adamw", "weight_decay": 0.1, "gradient_clip_norm": 0.1}
        | {"learning_rate_schedule": "cosine", "warmup_steps": 10},
    ),
    "C": (CategoryPairs(), SMALL_P | {"variant": "categories_only", "optimizer": "adam"}),
    "FIRST": (FormalLanguages(), SMALL_LANGUAGE | {"language": "first"}),
    "GPT, table, gelu": (GPTWorkload(), SMALL_GPT | {"activation": "gelu", "tied": True, "optimizer": "sgd"}),
    "PARITY": (FormalLanguages(), SMALL_LANGUAGE | {"language": "parity", "n_layers": 2}),
    "the template": (look_back(), SMALL_EXAMPLE | {"n_words": 3, "n_tokens": 4, "optimizer": "sgd"}),
}


def trainings_of(name: str, n: int) -> list[Training[Any]]:
    workload, settings = SHAPES[name]
    rates = (1e-3, 1e-2, 0.1)
    return [Training(defaults(workload, **{"learning_rate": rates[seed % 3]} | settings), seed) for seed in range(n)]


SEARCHING: dict[str, Any] = {
    **{"variant": "solution_3", "n_categories": 4, "n_positions": 9, "expectation": "fixed_sample"},
    **{"batch_size": 20, "optimizer": "lbfgs", "learning_rate": 1.0, "n_steps": 12, "stop_when_solved": False},
}
SHAPES["L-BFGS"] = CategoryPairs(), SEARCHING


@pytest.mark.slow
@pytest.mark.sample("P", "C", "FIRST", "P softmax, momentum, decay", "GPT, table, gelu", "the template", "L-BFGS")
@pytest.mark.parametrize("name", SHAPES)
def test_a_step_is_that_of_pytorch(name: str) -> None:
    """From the same state."""
    workload, _ = SHAPES[name]
    eager = Pack(workload, trainings_of(name, 3))
    eager.advance(5)
    compiled = Pack.resumed(workload, trainings_of(name, 3), eager.checkpoint(), programs=Programs())
    for pack in (eager, compiled):
        pack.advance(1)
    tolerance = 1e-12 if eager._store.rows.dtype == torch.float64 else 1e-5
    found, expected = ({**pack._store.optimizer.state_dict(), ROWS: pack._store.rows} for pack in (compiled, eager))
    if any(key.startswith("second/") for key in expected):
        # Adam divides a gradient by its size: where the true one is 0, what it moves by is the sign of rounding.
        del expected[ROWS]
    for key, value in expected.items():
        scale = float(value.double().abs().max())
        torch.testing.assert_close(found[key], value, rtol=0, atol=tolerance * scale + 1e-30)


class Unknown(CategoryPairs):
    """System P with an operation that cannot be compiled, and that changes nothing."""

    def loss(self, module: torch.nn.Module, batch: Batch) -> Tensor:
        return super().loss(module, batch) + 0.0 * cast(Tensor, module.v_NN).flatten().logcumsumexp(0).sum()


def ended(workload: Workload[Any], trainings: Sequence[Training[Any]], programs: Programs | None) -> dict[str, Any]:
    result = Pack(workload, trainings, programs=programs).train_to_end(7)
    outcome = result.at_last_probe(judged(workload, trainings[0].parameters, result.evidence).outcome)
    return {**result.evidence.metrics, "outcome": outcome, "n_steps": result.n_steps}


def differing(one: dict[str, Any], other: dict[str, Any], lanes: Any = slice(None)) -> list[str]:
    return [
        name for name in one if not np.array_equal(one[name][lanes], other[name], equal_nan=one[name].dtype.kind == "f")
    ]


@pytest.mark.slow
def test_a_shape_without_a_program_trains_as_without_blocks() -> None:
    trainings = trainings_of("P", 3)
    assert differing(ended(Unknown(), trainings, None), ended(Unknown(), trainings, Programs())) == []
    with pytest.raises(NoRuleError, match=r"^the operation aten\.logcumsumexp\.default cannot be compiled$"):
        Pack(Unknown(), trainings).trace()


@pytest.fixture(scope="module")
def programs(compiled: None) -> Programs:
    """Those of this module."""
    return Programs()


@pytest.mark.slow
def test_bits_depend_neither_on_the_place_in_a_block_nor_on_the_neighbours(programs: Programs) -> None:
    workload = CategoryPairs()
    trainings = trainings_of("P", 70)
    together = ended(workload, trainings, programs)
    eager = ended(workload, trainings, None)
    assert list(together["outcome"]) == list(eager["outcome"])
    np.testing.assert_allclose(together["eval_loss"], eager["eval_loss"], rtol=1e-9)
    assert differing(together, ended(workload, trainings[::-1], programs), slice(None, None, -1)) == []
    assert differing(together, ended(workload, trainings[68:69], programs), slice(68, 69)) == []
    elsewhere = [*trainings[40:], *trainings[:7]]
    assert differing(together, ended(workload, elsewhere, programs), [*range(40, 70), *range(7)]) == []

    # A training that turns to infinity stays alone with it.
    far: dict[str, Any] = {"learning_rate": 1e6, "init_sigma": 1.0}
    wild = [Training(defaults(workload, **SMALL_P, **far), 5), *trainings[1:]]
    found = ended(workload, wild, programs)
    assert found["n_steps"][0] < SMALL_P["n_steps"]
    assert found["n_steps"][0] == ended(workload, wild, None)["n_steps"][0]
    rest = {name: values[1:] for name, values in found.items()}
    assert differing(together, rest, slice(1, None)) == []


class Looking(AnyModule):
    """Looks up rows of an embedding.

    Args:
        indices: Those of a step, one row per training.
    """

    def __init__(self, indices: Callable[[int], Tensor]) -> None:
        super().__init__(lambda _: torch.nn.Embedding(3, 4))
        self._indices = indices

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        return {"words": self._indices(step)[: len(lanes.trainings)]}

    eval_batch = partialmethod(batch, step=0)

    def loss(self, module: torch.nn.Module, batch: Batch) -> Tensor:
        return cast(Tensor, module(batch["words"])).square().sum()


def looked_up(indices: Callable[[int], Tensor], programs: Programs | None) -> Tensor:
    settings: dict[str, Any] = {"n_steps": 200, "stop_when_solved": False, "optimizer": "sgd", "learning_rate": 0.01}
    workload = Looking(indices)
    pack = Pack(workload, [Training(defaults(workload, **settings), seed) for seed in range(3)], programs=programs)
    pack.advance(60)
    return pack._store.rows


def test_batches_may_differ_from_step_to_step_in_strides_and_may_be_empty() -> None:
    words = torch.tensor([[0, 0], [1, 1], [2, 1]])
    for indices in (lambda step: words if step % 2 else words[:1].expand(3, 2), lambda step: words[:, : step % 2]):
        torch.testing.assert_close(looked_up(indices, Programs()), looked_up(indices, None))


@pytest.mark.parametrize("index", [3, -1, 10**9])
def test_an_index_outside_of_a_table_is_refused_at_any_step(index: int) -> None:
    words = torch.tensor([[0, 0], [1, 1], [2, 1]])
    with pytest.raises(SpecError, match="index"):
        looked_up(lambda step: torch.where(words == 2, index, words) if step == 50 else words, Programs())


@pytest.mark.slow
def test_a_program_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(trace: Trace, width: int) -> str:
        source = source_of(trace, width)
        call = next(line for line in source.splitlines() if line.endswith("(m);") and line.startswith("n3"))
        return source.replace(f"\n{call}", "")

    monkeypatch.setattr(compiling, "source_of", broken)
    with pytest.raises(NoCompilerError, match="otherwise than PyTorch"):
        Pack(CategoryPairs(), trainings_of("P", 2), programs=Programs()).compile()


@pytest.mark.slow
@pytest.mark.parametrize("large", [2**16, 10])
def test_probes_measure_as_pytorch_does(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_LARGE", large)
    for name in ("P", "PARITY", "GPT, table, gelu"):
        workload, _ = SHAPES[name]
        compiled, eager = (Pack(workload, trainings_of(name, 3), programs=each) for each in (Programs(), None))
        found, expected = (pack._probing.measured(0, ends_lanes=False) for pack in (compiled, eager))
        assert [*found] == [*expected]
        for metric, values in expected.items():
            np.testing.assert_allclose(found[metric], values, rtol=1e-5, atol=1e-8)


def test_programs_are_kept_where_this_user_alone_can_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "attnsweep" / "programs").mkdir(parents=True)
    (tmp_path / "attnsweep" / "programs").chmod(0o777)
    with contextlib.suppress(NoCompilerError):
        compiled_engine()
    assert stat.S_IMODE((tmp_path / "attnsweep" / "programs").stat().st_mode) == 0o700

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(NoCompilerError, match=r"compiled programs cannot be stored in .*file/attnsweep/programs"):
        compiled_engine()
