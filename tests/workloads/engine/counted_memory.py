"""A stand-in for the memory of a GPU, on the CPU: it counts the bytes of all tensors, and runs out where it is full."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class CountedMemory(TorchDispatchMode):
    """So many bytes of memory; what is made under it raises `torch.OutOfMemoryError` where more would be in use."""

    def __init__(self, size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._size, self._used, self._before, self._peak = size, 0, 0, 0
        self._known = weakref.WeakSet[torch.UntypedStorage]()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        found = function(*arguments, **(options or {}))
        for each in tree_leaves(found):
            if isinstance(each, torch.Tensor):
                self._count(each.untyped_storage())
        return found

    def begin(self) -> None:
        """See `DeviceMemory`."""
        self._before = self._peak = self._used

    def peak(self) -> int:
        """See `DeviceMemory`."""
        return self._peak - self._before

    def free(self) -> int:
        """See `DeviceMemory`."""
        return self._size - self._used

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        self._used += storage.nbytes()
        weakref.finalize(storage, self._freed, storage.nbytes())
        self._peak = max(self._peak, self._used)
        if self._used > self._size:
            raise torch.OutOfMemoryError(f"out of memory: {self._used} of {self._size} bytes")

    def _freed(self, n_bytes: int) -> None:
        self._used -= n_bytes
