"""Counts the numbers that PyTorch's operations compute: a measure of work that does not depend on the machine."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def count_numbers(function: Callable[[], object]) -> int:
    """Runs a function and counts what its basic operations compute, unused values too."""
    with sdpa_kernel(SDPBackend.MATH), _Counting() as counting:
        function()
    n_numbers: int = counting.n_numbers
    return n_numbers


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_numbers = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # If this were True, PyTorch would import its compiler just to tell it so.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.n_numbers += sum(value.numel() for value in tree_leaves(result) if isinstance(value, Tensor))
        return result
