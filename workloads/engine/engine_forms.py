"""What a loss computes in another form than PyTorch's: dropout, and what `vmap` cannot do or does wrongly."""

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
    """Within this context PyTorch's functions have the forms that the engine needs.

    Args:
        masks: Of dropout, by the number of the call; none drops nothing.
        has_padding: Whether an embedding of the module has a padding row.

    Attributes:
        masks: As far as they are taken.
        replaced: The names of the functions that were.
    """

    def __init__(self, masks: Mapping[str, Tensor], has_padding: bool) -> None:
        super().__init__()
        self.masks = Masks(masks)
        self.replaced: set[str] = set()
        self._rules: dict[object, Callable[..., Any]] = {
            **{function: partial(rule, self.masks) for function, rule in DROPOUT_RULES.items()},
            **{function: partial(self._seen, form) for function, form in PLAIN_FORMS.items()},
            **({embedding: _embedding} if has_padding else {}),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = self._rules.get(func)
        if rule is None:
            return func(*args, **(kwargs or {}))
        self.replaced.add(func.__name__)
        return rule(*args, **(kwargs or {}))

    def _seen(self, form: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A plain form, whose own calls have the forms of the engine too."""
        with self:
            return form(*args, **kwargs)


def without_dropout() -> EngineForms:
    """Within this context nothing is dropped, in whatever mode a module is."""
    return EngineForms({}, has_padding=False)


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Cuts the gradient of each training's padding row. PyTorch 2.13 cuts that of the first one of a `vmap` alone."""
    if padding_idx is not None:
        rows = torch.arange(weight.shape[0], device=weight.device).unsqueeze(1)
        weight = torch.where(rows == padding_idx % weight.shape[0], weight.detach(), weight)
    return embedding(input, weight, None, max_norm, *args, **kwargs)
