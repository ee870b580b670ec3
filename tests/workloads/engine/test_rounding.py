"""Whether an elementwise operation rounds by the place in memory: what docs/trust.md says of bits, and its measure.

Widths from 1 to 17 have every remainder of a vector of 4, 8 and 16 numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Training
from attnsweep.workloads.engine.plain import deviation_by_place, said_of_places
from attnsweep.workloads.testing import defaults

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
