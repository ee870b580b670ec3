"""The mean of a loss over many texts, with its gradient taken part by part. Axes: B text, M position.

The backward pass of one big batch keeps every intermediate tensor: tens of megabytes per training, which do not fit the
cache and are allocated anew at every step. Parts of some dozen texts stay in the cache. Each part's gradient is taken
together with its loss, so its intermediate tensors are freed before the next part. [M: 16 trainings fused at N = 10,
M = 50, 1000 texts, one core: a gradient of one training takes 86 ms in one part, 25 ms in parts of 50 (solution_3);
356 and 192 ms (combined).]
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.func import grad_and_value

State = dict[str, Tensor]
"""Tensors by name."""
Loss = Callable[[State, Tensor], Tensor]


def mean_by_parts(loss: Loss, trained: State, fixed: State, text_BM: Tensor, n_texts: int) -> Tensor:
    """loss(trained | fixed, text_BM), differentiable once, with respect to `trained`.

    Args:
        loss: A mean over texts; it reads no tensors but its arguments.
        trained: The tensors to differentiate by.
        fixed: The other tensors that the loss reads.
        text_BM: The texts, (B, M).
        n_texts: Texts per part.
    """
    if text_BM.shape[0] <= n_texts:
        return loss(trained | fixed, text_BM)
    if not torch.is_grad_enabled():
        shares = [loss(trained | fixed, part) * _share(part, text_BM) for part in torch.split(text_BM, n_texts)]
        return torch.stack(shares).sum()
    tensors = (text_BM, *trained.values(), *fixed.values())
    mean: Tensor = _MeanByParts.apply(loss, tuple(trained), tuple(fixed), n_texts, *tensors)[0]  # type: ignore[no-untyped-call]
    return mean


class _MeanByParts(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        loss: Loss, trained_names: tuple[str, ...], fixed_names: tuple[str, ...], n_texts: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        text_BM, *values = tensors
        trained = dict(zip(trained_names, values, strict=False))
        fixed = dict(zip(fixed_names, values[len(trained) :], strict=True))

        def of_part(trained: State, part: Tensor) -> Tensor:
            return loss(trained | fixed, part) * _share(part, text_BM)

        mean = values[0].new_zeros(())
        sums = {name: torch.zeros_like(value) for name, value in trained.items()}
        for part in torch.split(text_BM, n_texts):
            gradients, value = grad_and_value(of_part)(trained, part)
            mean = mean + value
            sums = {name: sums[name] + gradient for name, gradient in gradients.items()}
        return mean, *sums.values()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.n_fixed = len(inputs[2])
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        not_tensors, text, fixed = (None,) * 4, (None,), (None,) * ctx.n_fixed
        return *not_tensors, *text, *(gradients[0] * saved for saved in ctx.saved_tensors), *fixed


def _share(part: Tensor, whole: Tensor) -> float:
    return part.shape[0] / whole.shape[0]
