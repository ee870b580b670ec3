"""A stand-in for a CUDA graph, on the CPU: it repeats the operations of a program on the same memory.

What a CUDA graph would freeze is frozen here too: Python's numbers, and where each tensor lies.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class RecordedGraph:
    """The operations of one run of a program."""

    def __init__(self) -> None:
        self._recording = _Recording()
        self.n_replays = 0

    def capture(self, run: Callable[[], None]) -> None:
        """Records what `run` does, without its effects: like CUDA's graphs, it is not run now."""
        with self._recording:
            run()
        with torch.no_grad():
            for target, value in reversed(self._recording.overwritten):
                target.copy_(value)

    def replay(self) -> None:
        """Does it again, with what the tensors hold now."""
        self.n_replays += 1
        with torch.no_grad():
            for function, arguments, options, results in self._recording.operations:
                found = function(*arguments, **options)
                if not any(each.alias_info is not None for each in function._schema.returns):
                    for result, value in zip(_tensors(results), _tensors(found), strict=True):
                        result.copy_(value)


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self.overwritten: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        for position, each in enumerate(function._schema.arguments):
            if each.alias_info is not None and each.alias_info.is_write:
                target = arguments[position] if position < len(arguments) else options.get(each.name)
                if target is not None:
                    self.overwritten.append((target.detach(), target.detach().clone()))
        results = function(*arguments, **options)
        self.operations.append((function, arguments, options, results))
        return results


def _tensors(values: Any) -> list[Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, Tensor)]
