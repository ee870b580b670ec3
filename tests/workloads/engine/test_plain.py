"""The engine computes of each training what plain PyTorch computes of it alone, or refuses it."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.plain import check_as_plain, deviation_by_place, said_of_places
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.testing import defaults
from tests.refusals import refused
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of

X = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
WORDS = torch.tensor([[0, 1, 2], [0, 0, 3]])
PARAMETERS = [AnyParameters(n_steps=3, gain=gain, init_sigma=None, stop_when_solved=False) for gain in (1.0, 2.0)]
GLOBAL = {"gain": 1.0}


class Line(nn.Module):
    """A linear layer beside something else."""

    shared = 1.0

    def __init__(self, parameters: AnyParameters) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(()))
        self.n_calls = 0
        self.last: Tensor | None = None
        self.held = [self.line.weight]
        self.generator = np.random.default_rng(0)
        GLOBAL["gain"] = Line.shared = parameters.gain

    def forward(self) -> Tensor:
        answer: Tensor = self.line(X)
        return answer


def _counted(module: Any) -> Any:
    module.n_calls += 1
    return module() * (1 + module.n_calls % 2)


def _warmed_up(module: Any) -> Any:
    module.n_calls += 1
    return module() * (1 if module.n_calls < 100 else 2)


def _logged(module: Any) -> Any:
    module.seen_norms = [*getattr(module, "seen_norms", []), float(module.n_calls + 4)]
    return module()


def _remembered(module: Any) -> Any:
    before, module.last = module.last, module()
    return module.last if before is None else module.last + 0.1 * before.detach()


def _averaged(module: Any) -> Any:
    module.seen = 0.9 * module.seen + module().mean().detach()
    return module() - module.seen


def _in_place(module: Any) -> Any:
    module.seen += 1
    return module()


def _hooked(module: Any) -> Any:
    answer: Tensor = module()
    if answer.requires_grad:
        answer.register_hook(lambda gradient: 0.5 * gradient)
    return answer


LOSSES: dict[str, tuple[Callable[[Any], Tensor], str]] = {
    "a counter": (_counted, "n_calls of the module: got 'a change from 1 to 2 while loss was computed'"),
    "a counter that matters later": (_warmed_up, "n_calls of the module: got 'a change from"),
    "what it has seen": (_logged, "seen_norms.1 of the module: got 'a change from nothing to 4.0"),
    "the last output": (_remembered, "the loss: got 'a loss whose value changes when it is computed again'"),
    "an average that is assigned": (
        _averaged,
        "seen of the module: got 'a change of its values while loss was computed'",
    ),
    "a counter in place": (_in_place, "seen of the module: got 'a change of its values while loss was computed'"),
    "a parameter in a list": (
        lambda module: X @ module.held[0],
        "the gradient of line.weight: got 'other values when computed together",
    ),
    "a hook on gradients": (
        _hooked,
        "the gradient of line.weight: got 'other values when computed together with another",
    ),
    "a global": (
        lambda module: module() * GLOBAL["gain"],
        "the loss: got 'the value .* together with another training', expected the value .* alone",
    ),
    "an attribute of the class": (lambda module: module() * module.shared, "the loss: got '.* together with another"),
    "a draw of NumPy": (lambda module: module() * np.random.rand(), "the loss: got 'a loss whose value"),
    "a draw of Python": (lambda module: module() * random.random(), "the loss: got 'a loss whose value"),
    "a generator of its own": (
        lambda module: module() * module.generator.random(),
        "the loss: got 'a loss whose value",
    ),
}


def _trainings() -> Any:
    return lanes_of(*PARAMETERS).trainings


@pytest.mark.parametrize(("answer", "sentence"), LOSSES.values(), ids=LOSSES)
def test_what_is_not_of_one_training_is_refused(answer: Callable[[Any], Tensor], sentence: str) -> None:
    with pytest.raises(SpecError, match=f"^{sentence}") as caught:
        check_as_plain(AnyModule(Line, answer), _trainings())
    assert "\n" not in str(caught.value)


def _normed(parameters: AnyParameters) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=parameters.optimizer == "sgd"))


def test_batch_norm_is_refused_for_its_running_averages_alone() -> None:
    workload = AnyModule(_normed, lambda module: module(X))
    with refused("1.running_mean of the module", SpecError):
        check_as_plain(workload, _trainings())
    check_as_plain(workload, lanes_of(AnyParameters(optimizer="adam")).trainings)


class Words(AnyModule):
    """Predicts each word from itself."""

    def batch(self, lanes: Any, step: int) -> dict[str, Tensor]:
        del step
        return {"words": WORDS.expand(len(lanes.trainings), -1, -1)}

    def eval_batch(self, lanes: Any) -> dict[str, Tensor]:
        return self.batch(lanes, 0)

    def loss(self, module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return cross_entropy(module(batch["words"]).flatten(0, 1), batch["words"].flatten())


@pytest.mark.slow
@pytest.mark.parametrize("padding", [0, 2, -1])
def test_no_training_learns_its_padding_row(padding: int) -> None:
    """In PyTorch 2.13 `vmap` cuts the gradient of the first lane's padding row only."""
    workload = Words(lambda _: nn.Sequential(nn.Embedding(4, 3, padding_idx=padding), nn.Linear(3, 4)))
    pack = Pack(workload, _trainings())
    _, start = pack.final_state(np.arange(2))
    pack.advance(3)
    _, end = pack.final_state(np.arange(2))
    moved = (end["0.weight"] != start["0.weight"]).any(2)
    assert not moved[:, padding].any()
    assert moved.sum() == 6
    check_as_plain(workload, _trainings())


Operation = Callable[[Tensor], Tensor]


def _of_size(function: Operation, x: Tensor) -> Tensor:
    return function(x.abs())


BY_PLACE: dict[str, Operation] = {
    **{name: getattr(torch, name) for name in ("exp2", "sinh", "cosh", "sigmoid")},
    **{name: getattr(functional, name) for name in ("softplus", "silu", "elu", "selu", "celu", "mish", "gelu")},
    "atanh": lambda x: torch.atanh(x.tanh()),
    "gelu, tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "power": lambda x: x.abs() ** 2.5,
    "power of itself": lambda x: x.abs() ** x,
    "atan2": lambda x: torch.atan2(x, x + 1),
    "hypot": lambda x: torch.hypot(x, x + 1),
    "logit": lambda x: torch.logit(x.sigmoid()),
    "logaddexp": lambda x: torch.logaddexp(x, 2 * x),
}
"""Functions that round the remainder beyond whole vectors otherwise, as docs/trust.md lists them."""
ALIKE: dict[str, Operation] = {
    **{name: getattr(torch, name) for name in ("exp", "expm1", "sin", "cos", "tan", "tanh", "asinh", "atan")},
    **{name: getattr(torch, name) for name in ("erf", "erfc", "reciprocal", "square", "abs", "sign", "floor", "round")},
    **{name: getattr(functional, name) for name in ("relu", "relu6", "softsign", "hardswish", "hardsigmoid")},
    **{name: getattr(functional, name) for name in ("logsigmoid", "leaky_relu", "hardtanh", "tanhshrink")},
    **{f"{each.__name__} of a size": partial(_of_size, each) for each in (torch.log, torch.log1p, torch.sqrt)},
    **{f"{each.__name__} of a size": partial(_of_size, each) for each in (torch.log2, torch.rsqrt, torch.lgamma)},
    "arguments in [-1, 1]": lambda x: torch.asin(x.tanh()) + torch.acos(x.tanh()) + torch.erfinv(x.tanh()),
    "third power": lambda x: x**3,
    "quotient": lambda x: x / (x + 3),
    "multiplied and added": lambda x: torch.addcmul(x, x, x, value=0.3),
    "divided and added": lambda x: torch.addcdiv(x, x, x + 3, value=0.3),
    "between": lambda x: torch.lerp(x, x + 1, 0.3),
}
WIDTHS = range(1, 18)
UNITS = 4.0
"""By how many units in the last place of the larger of 1, x and the result two ways of rounding differ at most."""


def _by_place(operation: Operation, dtype: torch.dtype) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Arguments, and results and gradients of each width, beside those that each number has in whole vectors."""
    found = []
    for width in WIDTHS:
        x = 1.5 * torch.randn(width, dtype=dtype, generator=torch.Generator().manual_seed(width))
        whole = _with_gradient(operation, x.repeat_interleave(64))[:, ::64]
        found.append((x, _with_gradient(operation, x), whole))
    return found


def _with_gradient(operation: Operation, x: Tensor) -> Tensor:
    """(2, n)."""
    x = x.clone().requires_grad_()
    value = operation(x)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    return torch.stack([value.detach(), gradient])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALIKE)
def test_a_number_is_rounded_alike_in_every_place(name: str, dtype: torch.dtype) -> None:
    for _, found, whole in _by_place(ALIKE[name], dtype):
        torch.testing.assert_close(found, whole, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", BY_PLACE)
def test_places_differ_by_a_few_units_of_rounding(name: str, dtype: torch.dtype) -> None:
    unit = torch.finfo(dtype).eps
    for x, found, whole in _by_place(BY_PLACE[name], dtype):
        is_finite = whole.isfinite()
        size = whole.abs().clamp(min=1.0).maximum(x.abs())
        assert ((found - whole).abs() <= UNITS * unit * size)[is_finite].all()


class Bent(CategoryPairs):
    """System P and a function of each parameter alone, so that each lane's place in a vector counts."""

    function: Operation = staticmethod(torch.tanh)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        numbers = torch.cat([value.flatten() for value in module.parameters()]).split(1)
        bent = sum(self.function(2.0 * each).sum() for each in numbers)
        return super().loss(module, batch) + bent


class BentByPlace(Bent):
    """By a function that rounds by place."""

    function = staticmethod(functional.gelu)


@pytest.mark.parametrize(("workload", "depends"), [(Bent(), False), (BentByPlace(), True)])
def test_a_workload_is_told_whether_its_bits_depend_on_the_place(workload: Bent, depends: bool) -> None:
    values: dict[str, Any] = {
        "variant": "positions_only",
        "n_categories": 3,
        "n_positions": 5,
        "n_steps": 10,
        "init_sigma": 0.5,
    }
    values |= {"learning_rate": 0.1}
    trainings = [Training(defaults(workload, **values), seed) for seed in range(20)]
    deviation = deviation_by_place(workload, trainings)
    assert (0.0 < deviation < 1e-14) if depends else deviation == 0.0
    said = said_of_places(workload, trainings)
    assert ("see docs/trust.md" in said) == depends
