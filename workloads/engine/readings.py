"""Measured numbers of trainings. Axes: L lane."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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
    """A loss (K,) of rows (K, n), and its gradients (K, n). Raises TypeError as `numbers_of` does."""
    # Lanes do not mix, so the sum's gradient is each lane's own.
    (gradient,) = torch.autograd.grad(numbers_of(name, loss).sum(), rows, materialize_grads=True)
    return loss.detach(), gradient
