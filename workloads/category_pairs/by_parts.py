"""The mean of a loss over many texts, whose gradient is computed a few texts at a time. Axes: B text, M position.

The backward pass of one big batch keeps every intermediate tensor: tens of megabytes per training, which do not fit the
cache and are allocated anew at every step. Parts of some dozen texts stay in the cache. Each part's gradient is taken
together with its loss, so its intermediate tensors are freed before the next part. [M: 16 trainings fused at N = 10,
M = 50, 1000 texts, one core: a gradient of one training takes 86 ms in one part, 25 ms in parts of 50 (solution_3);
356 and 192 ms (combined).]

Compiled gradients are taken in the same parts through `Split`. The vmapped engine cannot use `Split`: a flavour's added
loss does not depend on texts, and adding a share of it with each part would round differently.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.func import grad_and_value

from attnsweep.workloads.engine.optimizers import State

Loss = Callable[[State, Tensor], tuple[Tensor, ...]]
"""A function of tensors by name and texts (B, M). It returns the mean loss over the texts, (), and any further tensors
(B, ...) with one row per text."""


def mean_by_parts(loss: Loss, trained: State, fixed: State, text_BM: Tensor, n_texts: int) -> tuple[Tensor, ...]:
    """Returns the mean of `loss` over texts, evaluated on `n_texts` texts at a time to save memory.

    The mean loss is differentiable once, with respect to `trained`. The further tensors have no gradients.

    Args:
        loss: A function that reads no tensors but its arguments.
        trained: The tensors with respect to which the mean loss is differentiated.
        fixed: The other tensors that the loss reads.
        text_BM: The texts, (B, M).
        n_texts: Texts per part.
    """
    if text_BM.shape[0] <= n_texts:
        return loss(trained | fixed, text_BM)
    if not torch.is_grad_enabled():
        parts = torch.split(text_BM, n_texts)
        means, *further = zip(*(loss(trained | fixed, part) for part in parts), strict=True)
        shares = [mean * _share(part, text_BM) for mean, part in zip(means, parts, strict=True)]
        return torch.stack(shares).sum(), *(torch.cat(rows) for rows in further)
    tensors = (text_BM, *trained.values(), *fixed.values())
    outputs: tuple[Tensor, ...] = _MeanByParts.apply(loss, tuple(trained), tuple(fixed), n_texts, *tensors)  # type: ignore[no-untyped-call]
    return outputs[0], *outputs[1 + len(trained) :]


class _MeanByParts(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        loss: Loss, trained_names: tuple[str, ...], fixed_names: tuple[str, ...], n_texts: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        text_BM, *values = tensors
        trained = dict(zip(trained_names, values, strict=False))
        fixed = dict(zip(fixed_names, values[len(trained) :], strict=True))

        def part_loss(trained: State, part: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            mean, *further = loss(trained | fixed, part)
            return mean * _share(part, text_BM), tuple(further)

        mean = values[0].new_zeros(())
        sums = {name: torch.zeros_like(value) for name, value in trained.items()}
        further = []
        for part in torch.split(text_BM, n_texts):
            gradients, (value, text_rows) = grad_and_value(part_loss, has_aux=True)(trained, part)
            mean = mean + value
            sums = {name: sums[name] + gradient for name, gradient in gradients.items()}
            further.append(text_rows)
        return mean, *sums.values(), *(torch.cat(rows) for rows in zip(*further, strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        n_trained, ctx.n_fixed = len(inputs[1]), len(inputs[2])
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1 : 1 + n_trained])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        not_tensors, text, fixed = (None,) * 4, (None,), (None,) * ctx.n_fixed
        return *not_tensors, *text, *(gradients[0] * saved for saved in ctx.saved_tensors), *fixed


def _share(part_BM: Tensor, text_BM: Tensor) -> float:
    return part_BM.shape[0] / text_BM.shape[0]
