"""Numbers that a workload's functions give for each training."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def numbers_of(name: str, values: Tensor) -> Tensor:
    """Values (L,) checked to be one real number per training.

    Raises:
        TypeError: If they are not.
    """
    if values.dim() != 1 or values.is_complex():
        raise TypeError(
            f"{name}: got {str(values.dtype).removeprefix('torch.')} of shape {tuple(values.shape[1:])} for each "
            "training, expected one real number; reduce it with .mean(), or a complex one with .abs()"
        )
    return values


def to_numpy(values: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    """Such values by name, in float64 and in this process's memory."""
    return {name: numbers_of(name, value).detach().to("cpu", torch.float64).numpy() for name, value in values.items()}
