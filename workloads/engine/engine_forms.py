"""Replaces PyTorch functions within a loss: dropout, and functions that `vmap` does not support or computes wrongly."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding
from torch.overrides import TorchFunctionMode

from attnsweep.workloads.engine.dropout import DROPOUT_RULES, Masks
from attnsweep.workloads.engine.plain_forms import PLAIN_FORMS


class EngineForms(TorchFunctionMode):
    """A context in which the engine's own versions replace certain PyTorch functions.

    Args:
        masks: The dropout masks by the number of the call; empty to drop nothing.
        has_padding: Whether an embedding of the module has a padding row.

    Attributes:
        masks: The `Masks`, which record the calls of dropout so far.
        replaced: The names of the functions that were called and replaced so far.
    """

    def __init__(self, masks: Mapping[str, Tensor], has_padding: bool) -> None:
        super().__init__()
        self.masks = Masks(masks)
        self.replaced: set[str] = set()
        self._rules: dict[object, Callable[..., Any]] = {
            **{function: partial(rule, self.masks) for function, rule in DROPOUT_RULES.items()},
            **{function: partial(self._in_context, form) for function, form in PLAIN_FORMS.items()},
            **({embedding: _embedding} if has_padding else {}),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = self._rules.get(func)
        if rule is None:
            return func(*args, **(kwargs or {}))
        self.replaced.add(func.__name__)
        return rule(*args, **(kwargs or {}))

    def _in_context(self, form: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a replacement with this context active again: PyTorch disables it during `__torch_function__`."""
        with self:
            return form(*args, **kwargs)


def without_dropout() -> EngineForms:
    """Returns a context in which dropout drops nothing, even in modules in training mode."""
    return EngineForms({}, has_padding=False)


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Stops the gradient of the padding row in all lanes. Under `vmap`, PyTorch 2.13 stops only that of the first."""
    if padding_idx is not None:
        rows = torch.arange(weight.shape[0], device=weight.device).unsqueeze(1)
        weight = torch.where(rows == padding_idx % weight.shape[0], weight.detach(), weight)
    return embedding(input, weight, None, max_norm, *args, **kwargs)
