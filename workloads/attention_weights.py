"""Attention weights of any module: what its softmaxes give, wherever they are computed.

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
    """The weights (N, B, H, Q, K) of all attention layers of a module, in their order, called with these arguments.

    They are found by their softmax: of `nn.MultiheadAttention` and all that is made of it, of
    `scaled_dot_product_attention`, of Hugging Face's and TransformerLens' models, and of code that takes a softmax over
    the last axis of (B, H, Q, K), or of (B, Q, Q) in a module without such. As `attention` of `score_patterns`, and
    `torch.unbind` of it in `Lenses`.

    Raises:
        SpecError: If there are none, or their shapes differ between layers.
    """
    found = seen_weights(lambda: module(*arguments))
    shapes = {tuple(each.shape) for each in found}
    if len(shapes) != 1:
        raise SpecError(
            f"the attention of {type(module).__name__}",
            given=f"softmaxes of the shapes {sorted(shapes)}"
            if found
            else "no softmax of (sequence, head, token, token)",
            expected="weights of one shape in all layers",
            fix="return the weights that you mean, stacked, from a function of module and tokens of your own",
        )
    return torch.stack(found)


def seen_weights(call: Callable[[], object]) -> list[Tensor]:
    """The weights (B, H, Q, K) that the softmaxes of a computation give, in their order."""
    watch = _Watch()
    with watch:
        call()
    with_heads = [each for each in watch.seen if each.dim() == _AXES]
    of_one_head = [
        each.unsqueeze(1) for each in watch.seen if each.dim() == _AXES - 1 and each.shape[1] == each.shape[2]
    ]
    return with_heads or of_one_head


class _Watch(TorchFunctionMode):
    """Keeps the results of softmaxes over the last axis.

    Attributes:
        seen: So far.
    """

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
        found = func(*args, **options)
        if func in _SOFTMAXES:
            axis = options["dim"] if "dim" in options else args[1]
            if axis in (-1, found.dim() - 1):
                self.seen.append(found)
        return found

    def _of_heads(
        self, *args: Any, need_weights: bool = True, average_attn_weights: bool = True, **options: Any
    ) -> Any:
        """Without the weights asked for, PyTorch keeps the axis of heads where it takes the softmax."""
        answer, _ = multi_head_attention(*args, **options, need_weights=False)
        weights = self.seen[-1]
        return answer, (weights.mean(1) if average_attn_weights else weights) if need_weights else None
