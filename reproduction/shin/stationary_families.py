"""The families that stationary points of systems P and C belong to. Axes: L lane, K predicted position.

System P (docs/theory.md): `solution`, `centred_shift`, `mean`, `zero`, recognized by their levels; Hessian index 0, 1,
1, 2. System C (docs/theory.md): `solution`, `marginal`, `zero`, recognized by their levels; index 0, 1, 3. Between
these levels, at a level that depends on q*, there are two families in which the row sums sg_i + d_i of v add up to 0
over the predicted positions; their index is 1 or 2. In `zero_row_sums` each row sum is 0; in `zero_diagonal` q(t, t) =
0 and the row sums are free otherwise [M: every point found by search is in one of these families].
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.reproduction.shin.stationary import StationaryPoints, nearest_level

_ZERO = 1e-4
"""Where two families cross, the gradient is of second order in the distance: 1e-10 allows a distance of 1e-5."""


def family_of_positions_only(found: StationaryPoints, levels: dict[str, Tensor]) -> NDArray[np.str_]:
    """(L,) names; `levels` (L,) are the reference levels by name."""
    n_predicted = found.parameters["q_MK"].shape[2]
    return _by_level(found, levels, ("centred_shift", "mean", "zero"), n_predicted)


def family_of_categories_only(found: StationaryPoints, levels: dict[str, Tensor]) -> NDArray[np.str_]:
    """(L,) names; `levels` (L,) are the reference levels by name."""
    row_sums_LK = found.parameters["v_KM"].sum(2)
    diagonal_LN = found.parameters["q_NN"].diagonal(dim1=1, dim2=2)
    by_level = _by_level(found, levels, ("marginal", "zero"), row_sums_LK.shape[1])
    each_is_zero = (row_sums_LK.abs().amax(1) < _ZERO).numpy()
    on_diagonal = ((row_sums_LK.sum(1).abs() < _ZERO) & (diagonal_LN.abs().amax(1) < _ZERO)).numpy()
    otherwise = np.select([each_is_zero, on_diagonal], ["zero_row_sums", "zero_diagonal"], "none")
    return np.where(by_level == "none", otherwise, by_level)


def _by_level(
    found: StationaryPoints, levels: dict[str, Tensor], names: tuple[str, ...], n_predicted: int
) -> NDArray[np.str_]:
    losses = found.losses.detach() / n_predicted
    known = {"solution": torch.zeros_like(losses)} | {name: levels[name] for name in names}
    return nearest_level(losses.numpy(), {name: level.expand_as(losses).numpy() for name, level in known.items()})
