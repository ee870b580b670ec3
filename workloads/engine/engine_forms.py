"""Replaces PyTorch functions within a loss: dropout, and what `vmap` does not support or computes wrongly.

Masks of dropout are part of a step's batch, drawn from the training's streams by step and number of the call; without
them nothing is dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, embedding
from torch.overrides import TorchFunctionMode

from attnsweep.workloads.engine.contract import Batch, Lanes, P
from attnsweep.workloads.engine.layout import prefixed
from attnsweep.workloads.engine.plain_forms import PLAIN_FORMS
from attnsweep.workloads.errors import SpecError

DROPOUT = "dropout masks"
"""The prefix of dropout masks in a batch: `<prefix>/<number of the call>`."""

_VALUES = 2**16
"""A draw has one of this many values, so the dropped share is rounded to a multiple of 1 / 65,536."""


@dataclass(frozen=True, slots=True)
class Site:
    """One call of dropout in the loss; it drops `n_dropped` of `_VALUES` entries."""

    shape: tuple[int, ...]
    n_dropped: int


def with_masks(lanes: Lanes[P], sites: Sequence[Site], step: int, batch: Batch) -> Batch:
    """Adds to a step's batch the masks, (n_trainings, ...), of these calls."""
    drawn = lanes.streams.kept("dropout", [(site.shape, site.n_dropped) for site in sites], step)
    return batch | prefixed(DROPOUT, {str(number): mask for number, mask in enumerate(drawn)})


class Masks:
    """The dropout masks of one evaluation of a loss, in the order of the calls, which it records as `sites`."""

    def __init__(self, masks: Mapping[str, Tensor]) -> None:
        self._masks = masks
        self.sites: list[Site] = []

    def next(self, shape: tuple[int, ...], share: float) -> tuple[Tensor, float] | None:
        """The mask (1 keeps an entry) and the rate of the next call; `None` if it drops nothing."""
        site = Site(shape, round(share * _VALUES))
        number = len(self.sites)
        self.sites.append(site)
        if not self._masks or not site.n_dropped:
            return None
        mask = self._masks.get(str(number))
        if mask is None or tuple(mask.shape) != shape:
            given = f"call {number + 1} of dropout on a tensor of the shape {shape}, unlike in the first evaluation"
            fix = "let only static parameters and the batch's shapes decide whether dropout is called"
            raise SpecError("dropout", given=given, expected="the same calls on batches of the same shapes", fix=fix)
        return mask, site.n_dropped / _VALUES


def _dropped(
    masks: Masks, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, **train: bool
) -> Tensor:
    """Scales the kept entries up, as PyTorch does. Source: Srivastava et al. 2014."""
    call = masks.next(tuple(input.shape), p) if train.get("train", training) and p else None
    if call is None:
        return input
    mask, dropped = call
    value = input * (mask.to(input.dtype) * (1 / (1 - dropped) if dropped < 1 else 0.0))
    return input.copy_(value) if inplace else value


class EngineForms(TorchFunctionMode):
    """Within, dropout and other functions are replaced by the engine's own; `replaced` names those met so far. `masks`
    are by the number of the call."""

    def __init__(self, masks: Mapping[str, Tensor], has_padding: bool) -> None:
        super().__init__()
        self.masks = Masks(masks)
        self.replaced: set[str] = set()
        self._rules: dict[object, Callable[..., Any]] = {
            **dict.fromkeys((dropout, torch.dropout), partial(_dropped, self.masks)),
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
        """PyTorch disables this context in `__torch_function__`, so functions called inside would not be replaced."""
        with self:
            return form(*args, **kwargs)


def without_dropout() -> EngineForms:
    """In this context dropout drops nothing, even in modules in training mode."""
    return EngineForms({}, has_padding=False)


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """PyTorch's, within `vmap` too without a gradient of the padding row."""
    if padding_idx is not None:
        rows = torch.arange(weight.shape[0], device=weight.device).unsqueeze(1)
        weight = torch.where(rows == padding_idx % weight.shape[0], weight.detach(), weight)
    return embedding(input, weight, None, max_norm, *args, **kwargs)
