"""Sums on a GPU: the same numbers and gradients, from rows that begin at multiples of four numbers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attnsweep.workloads.engine.even_rows import EvenRows

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda value: value.sum((1, 2)),
    "mean": lambda value: value.mean((1, 2)),
    "mean of all but lanes, kept": lambda value: value.mean((1, 2), keepdim=True),
    "in another type": lambda value: value.sum((1, 2), dtype=torch.float32),
    "norm": lambda value: torch.linalg.vector_norm(value, dim=(1, 2)),
    "largest": lambda value: torch.linalg.vector_norm(value, float("inf"), dim=(1, 2)),
    "of a part": lambda value: value[:, :, 1:].sum((1, 2)),
    "of transposed rows": lambda value: value.transpose(1, 2).mean((1, 2)),
    "short rows": lambda value: value.sum(2),
    "over lanes": lambda value: value.sum(0),
    "of all": lambda value: value.sum(),
}


class _Sums(TorchDispatchMode):
    """Notes what each sum reads, and where its rows begin, counted in numbers modulo four."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.begin: set[int] = set()
        self.read: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.sum.dim_IntList, torch.ops.aten.mean.dim, torch.ops.aten.linalg_vector_norm.default):
            value = args[0]
            self.read.append(value.data_ptr())
            self.begin |= {value[lane].storage_offset() % 4 for lane in range(len(value))}
        return func(*args, **(kwargs or {}))


@contextmanager
def _sums() -> Iterator[_Sums]:
    with _Sums() as seen, EvenRows():
        yield seen


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_stay(name: str) -> None:
    function = FUNCTIONS[name]
    value = torch.linspace(0.5, 2.0, 3 * 10 * 19, dtype=torch.float64).view(3, 10, 19).requires_grad_()
    expected = function(value)
    with EvenRows():
        ours = function(value)
        (gradient,) = torch.autograd.grad(ours.sum(), value)
    (gradient_expected,) = torch.autograd.grad(expected.sum(), value)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(gradient, gradient_expected)


@pytest.mark.parametrize("name", ["sum", "mean", "norm", "of a part", "of transposed rows"])
def test_rows_begin_at_multiples_of_four_numbers(name: str) -> None:
    value = torch.ones(3, 10, 19)
    with _sums() as seen:
        FUNCTIONS[name](value)
    assert seen.begin == {0}
