"""Functions of a module as pure functions of its parameters, buffers and batch, which `vmap` can map over lanes."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import embedding
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.vectorization import refusal_of

R = TypeVar("R")


def one_lane(template: nn.Module, function: Callable[[nn.Module, Batch], R]) -> Callable[[State, State, Batch], R]:
    """Turns a function of ONE training's module and batch into one of its parameters, buffers and batch.

    Args:
        template: A module of the same structure; its own values are not read.
        function: For example a workload's `loss`.
    """
    objective = _Objective(template, function)
    has_padding = any(isinstance(each, nn.Embedding) and each.padding_idx is not None for each in template.modules())

    def call(parameters: State, buffers: State, batch: Batch) -> R:
        state = {f"module.{name}": value for name, value in (parameters | buffers).items()}
        with _PaddingRows() if has_padding else nullcontext():
            result: R = functional_call(objective, state, (batch,))
        return result

    return call


def parted(template: nn.Module, state: State) -> tuple[State, State]:
    """The parameters of a state, in the order of the module, and the buffers, as functions over lanes take them."""
    parameters = {name: state[name] for name, _ in template.named_parameters()}
    return parameters, {name: value for name, value in state.items() if name not in parameters}


def over_lanes(
    template: nn.Module, function: Callable[[nn.Module, Batch], Any]
) -> Callable[[State, State, Batch], Any]:
    """`one_lane` over many trainings at once: parameters, buffers, batch and results have a leading lane axis.

    The result raises a `SpecError` where the function does what cannot be done for many trainings at once.
    """
    mapped = vmap(one_lane(template, function))

    def vectorized(parameters: State, buffers: State, batch: Batch) -> Any:
        try:
            return mapped(parameters, buffers, batch)
        except (RuntimeError, ValueError) as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
        raise refusal

    def padded(parameters: State, buffers: State, batch: Batch) -> Any:
        if next(iter(parameters.values())).shape[0] > 1:
            return vectorized(parameters, buffers, batch)
        # A single lane would take other kernels for products and sums, which round differently.
        twice = [
            {name: value.repeat_interleave(2, 0) for name, value in each.items()}
            for each in (parameters, buffers, batch)
        ]
        return tree_map(lambda value: value[:1], vectorized(*twice))

    return padded


class _PaddingRows(TorchFunctionMode):
    """Cuts the gradient of each training's padding row. PyTorch 2.13 cuts that of the first one of a `vmap` alone."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = _embedding if func is embedding else func
        return rule(*args, **(kwargs or {}))


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    if padding_idx is not None:
        rows = torch.arange(weight.shape[0], device=weight.device).unsqueeze(1)
        weight = torch.where(rows == padding_idx % weight.shape[0], weight.detach(), weight)
    return embedding(input, weight, None, max_norm, *args, **kwargs)


class _Objective(nn.Module, Generic[R]):
    """Lets `functional_call` evaluate a function of a module as if it were the module's forward pass."""

    def __init__(self, module: nn.Module, function: Callable[[nn.Module, Batch], R]) -> None:
        super().__init__()
        self.module = module
        self._function = function

    def forward(self, batch: Batch) -> R:
        return self._function(self.module, batch)
