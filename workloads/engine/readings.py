"""Checks losses and metrics, takes gradients, and copies values to the host. Axes: L lane, K lane evaluated."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.vectorization import refusal_of
from attnsweep.workloads.errors import SpecError


def to_numpy(values: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    """Copies values (L,) by name to the host, in float64.

    Raises:
        TypeError: If a value is not one real number per training.
    """
    numbers = [numbers_of(name, value).detach().to(torch.float64) for name, value in values.items()]
    # All values are copied in one operation, because the host waits for the device at every copy.
    copies = torch.cat(numbers).cpu().split([value.shape[0] for value in numbers])
    return {name: copy.numpy() for name, copy in zip(values, copies, strict=True)}


def numbers_of(name: str, values: Tensor) -> Tensor:
    """Checks that `values` are one real number per training, (L,), and returns them.

    Raises:
        TypeError: If they are not.
    """
    if values.dim() != 1 or values.is_complex():
        raise TypeError(
            f"{name}: got {str(values.dtype).removeprefix('torch.')} of shape {tuple(values.shape[1:])} for each "
            "training, expected one real number per training; reduce the tensor with .mean(), or with .abs() if it is"
            " complex"
        )
    return values


def descent(name: str, loss: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a detached loss (K,) and its gradient (K, n) with respect to `rows` (K, n).

    Raises:
        TypeError: If the loss is not one real number per lane.
        SpecError: If PyTorch cannot compute the gradient.
    """
    return loss.detach(), gradients_of(name, numbers_of(name, loss), {ROWS: rows})[ROWS]


def gradients_of(name: str, loss: Tensor, at: State) -> State:
    """Returns the gradients, by name, of a loss () or (K,) with respect to the tensors in `at`.

    Raises:
        SpecError: If no gradient flows back from the loss, or `vmap` cannot compute it for many trainings at once.
    """
    if not loss.requires_grad:
        raise SpecError(
            name,
            given="a value that no parameter of the module changes",
            expected="a loss whose gradient PyTorch can compute",
            fix="compute the loss from parameters of the module that require gradients, without detach(),"
            " torch.no_grad(), argmax or a comparison",
        )
    # The loss of a lane depends on that lane alone, so the gradient of the sum consists of the lanes' own gradients.
    try:
        gradients = torch.autograd.grad(loss.sum(), list(at.values()), materialize_grads=True, allow_unused=True)
    except RuntimeError as error:
        refusal = refusal_of(error, f"the gradient of {name}")
        if refusal is None:
            raise
        raise refusal from error
    return dict(zip(at, gradients, strict=True))
