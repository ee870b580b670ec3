"""Checks attention matrices: they are square and finite, with entries >= 0 and rows that sum to 1. Axes: T token."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.errors import UserError

ROW_SUM_TOLERANCE = 1e-5
"""A row's sum may differ from 1 by this: more than softmax's rounding in float32, less than the effect of any
dropout."""


def checked_attention(
    matrices: Tensor | NDArray[np.generic], *, any_row_sum: bool = False, subject: str = "attention"
) -> Tensor:
    """Checks attention matrices and returns them in float64, (..., T, T).

    Args:
        matrices: (..., T, T), rows are queries.
        any_row_sum: Accept rows that do not sum to 1, for matrices that were captured with dropout on and cannot be
            captured again, such as the thesis's. Distances keep their meaning: the structure's rows still sum to 1, so
            a row of sum r is at least |r - 1| away from every structure. Scores of attention masses lose their meaning.
        subject: The name of the matrices in errors.

    Raises:
        UserError: If the matrices are not attention matrices.
    """
    attention = torch.as_tensor(matrices)
    if not (attention.is_floating_point() or attention.dtype in _INTEGERS):
        raise UserError(
            subject,
            given=str(attention.dtype),
            expected="attention weights that are real numbers",
            fix="store the weights as float32",
        )
    if attention.ndim < 2 or attention.shape[-1] != attention.shape[-2] or 0 in attention.shape:
        raise UserError(
            subject,
            given=f"an array of the shape {tuple(attention.shape)}",
            expected="square matrices of the shape (..., n, n)",
            fix="remove padding from queries and keys alike; cross-attention is not accepted, because its matrices"
            " have no diagonal",
        )
    attention = attention.double()
    if not attention.isfinite().all():
        raise UserError(
            subject,
            given=f"attention weights with {int((~attention.isfinite()).sum())} entries that are NaN or infinite",
            expected="attention weights that are finite numbers",
            fix="remove rows whose keys are all masked, which softmax turns into NaN",
        )
    if (attention < 0).any():
        raise UserError(
            subject,
            given=f"attention weights with the negative entry {attention.min().item():.6g}",
            expected="attention weights that are probabilities, so at least 0",
            fix="give the attention weights after the softmax, not the logits before it",
        )
    if not any_row_sum:
        _check_row_sums(attention, subject)
    return attention


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _check_row_sums(attention: Tensor, subject: str) -> None:
    sums = attention.sum(-1)
    if ((sums - 1.0).abs() <= ROW_SUM_TOLERANCE).all():
        return
    raise UserError(
        subject,
        given=f"attention weights whose rows sum to {sums.min().item():.6g} up to {sums.max().item():.6g}",
        expected=f"rows that sum to 1 within {ROW_SUM_TOLERANCE:g}",
        fix="capture the weights in eval mode, in float32, with all keys: dropout, missing keys and half precision "
        "change the sums; or accept any sum with --any-row-sum or any_row_sum=True",
    )
