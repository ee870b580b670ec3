"""Reads attention weights off any module by recording the results of its softmaxes.

Axes: N layer, B sequence, H head, Q query token, K key token.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnsweep.workloads.engine.plain_forms import attention, multi_head_attention
from attnsweep.workloads.errors import SpecError

_SOFTMAXES = (functional.softmax, torch.softmax, Tensor.softmax)
_AXES = 4


def attention_weights(module: nn.Module, *arguments: Any) -> Tensor:
    """Calls a module with the given arguments, and returns the attention weights (N, B, H, Q, K) of all its layers.

    Layers are in the order of their computation. A layer is recognised by its softmax: that of
    `nn.MultiheadAttention` and of modules built on it, of `scaled_dot_product_attention`, of the models of Hugging Face
    and TransformerLens, and of any code that takes a softmax over the last axis of a tensor (B, H, Q, K). A module
    without softmaxes of four axes may have some over (B, Q, Q): these count as one head. Fits as the argument
    `attention` of `score_patterns`; `Lenses.attention` takes `torch.unbind` of the result.

    Raises:
        SpecError: If the module computes no such softmax, or the shapes of the weights differ between layers.
    """
    weights = seen_weights(lambda: module(*arguments))
    shapes = {tuple(layer.shape) for layer in weights}
    if len(shapes) != 1:
        raise SpecError(
            f"the attention of {type(module).__name__}",
            given=f"softmaxes of the shapes {sorted(shapes)}"
            if weights
            else "a module that computes no softmax of the shape (sequence, head, token, token)",
            expected="attention weights of the same shape in all layers",
            fix="pass a function that takes the module and the tokens and returns the attention weights of all"
            " layers, stacked",
        )
    return torch.stack(weights)


def seen_weights(call: Callable[[], object]) -> list[Tensor]:
    """Runs `call` and returns the attention weights (B, H, Q, K) of all softmaxes in it, in their order."""
    watch = _Watch()
    with watch:
        call()
    with_heads = [weights for weights in watch.seen if weights.dim() == _AXES]
    of_one_head = [
        weights.unsqueeze(1)
        for weights in watch.seen
        if weights.dim() == _AXES - 1 and weights.shape[1] == weights.shape[2]
    ]
    return with_heads or of_one_head


class _Watch(TorchFunctionMode):
    """A mode in which the result of every softmax over the last axis is recorded in `seen`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            with self:
                return attention(*args, **options)
        if func is functional.multi_head_attention_forward:
            with self:
                return self._of_heads(*args, **options)
        result = func(*args, **options)
        if func in _SOFTMAXES:
            axis = options["dim"] if "dim" in options else args[1]
            if axis in (-1, result.dim() - 1):
                self.seen.append(result)
        return result

    def _of_heads(
        self, *args: Any, need_weights: bool = True, average_attn_weights: bool = True, **options: Any
    ) -> Any:
        """Computes `multi_head_attention_forward` without weights as results: PyTorch then takes a softmax per head."""
        output, _ = multi_head_attention(*args, **options, need_weights=False)
        weights = self.seen[-1]
        return output, (weights.mean(1) if average_attn_weights else weights) if need_weights else None
