"""Measured numbers of trainings. Axes: L lane."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.vectorization import refusal_of
from attnsweep.workloads.errors import SpecError


def to_numpy(values: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    """Measured values on the host, (L,) by name.

    Raises:
        TypeError: As `numbers_of` raises it.
    """
    numbers = [numbers_of(name, value).detach().to(torch.float64) for name, value in values.items()]
    # In one copy: the host waits for the device at every copy.
    together = torch.cat(numbers).cpu().split([each.shape[0] for each in numbers])
    return {name: each.numpy() for name, each in zip(values, together, strict=True)}


def numbers_of(name: str, values: Tensor) -> Tensor:
    """Values checked to be one real number per training.

    Raises:
        TypeError: If they are not.
    """
    if values.dim() != 1 or values.is_complex():
        raise TypeError(
            f"{name}: got {str(values.dtype).removeprefix('torch.')} of shape {tuple(values.shape[1:])} for each "
            "training, expected one real number; reduce it with .mean(), or a complex one with .abs()"
        )
    return values


def descent(name: str, loss: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """A loss (K,) of rows (K, n), and its gradients (K, n). Raises TypeError as `numbers_of` does, and SpecError as
    `gradients_of`."""
    return loss.detach(), gradients_of(name, numbers_of(name, loss), {ROWS: rows})[ROWS]


def gradients_of(name: str, loss: Tensor, at: State) -> State:
    """The gradients of a loss, () or (K,), by name.

    Raises:
        SpecError: If no gradient flows back from it, or not for many trainings at once.
    """
    if not loss.requires_grad:
        raise SpecError(
            name,
            given="a value that no parameter of the module changes",
            expected="a loss whose gradient PyTorch can compute",
            fix="compute it from parameters of the module that require gradients, without detach(), torch.no_grad(),"
            " argmax or a comparison",
        )
    # Lanes do not mix, so the sum's gradient is each lane's own.
    try:
        found = torch.autograd.grad(loss.sum(), list(at.values()), materialize_grads=True, allow_unused=True)
    except RuntimeError as error:
        refusal = refusal_of(error, f"the gradient of {name}")
        if refusal is None:
            raise
        raise refusal from error
    return dict(zip(at, found, strict=True))
