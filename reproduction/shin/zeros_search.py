"""Searches for stationary points of systems P and C for `shin-zeros`, and lists the families that the theory derives.

Axes: L solve.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from attnsweep.reproduction.shin.equations import searched
from attnsweep.reproduction.shin.stationary import family_of_categories_only, family_of_positions_only
from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly

SIZES = ((2, 3), (3, 4), (4, 3), (4, 5))
"""The sizes (N, M) of the searches; small, because the full Hessian is computed."""
SOLVES_PER_SIZE = 200
INIT_SIGMA = 1.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A family of stationary points that docs/theory.md derives.

    Attributes:
        level: The loss per predicted position, as a formula.
        indices: The Hessian indices that its points may have.
    """

    name: str
    level: str
    indices: tuple[int, ...]


FAMILIES = {
    "P": (
        Family(name="solution", level="0", indices=(0,)),
        Family(name="centred_shift", level="1/N + 1/M - 1/(NM)", indices=(1,)),
        Family(name="mean", level="1 - 1/N", indices=(1,)),
        Family(name="zero", level="1", indices=(2,)),
    ),
    "C": (
        Family(name="solution", level="0", indices=(0,)),
        Family(name="zero_row_sums", level="E Y^2 - G", indices=(1, 2)),
        Family(name="zero_diagonal", level="E Y^2 - G", indices=(1, 2)),
        Family(name="marginal", level="V*", indices=(1,)),
        Family(name="zero", level="E Y^2", indices=(3,)),
    ),
}


@dataclass(frozen=True, slots=True)
class FoundPoints:
    """The points at which the searches in one system ended.

    Attributes:
        family: The name of a family of `FAMILIES`, (L,); `none` for a stationary point of no known family; `not
            converged`.
        index: The Hessian index, (L,).
        level: The level as a share of the level of the zero, (L,).
        size: The index into `SIZES`, (L,).
    """

    family: NDArray[np.str_]
    index: NDArray[np.int64]
    level: NDArray[np.float64]
    size: NDArray[np.int64]


def find_points(system: str, n_solves: int, sizes: Sequence[tuple[int, int]] = SIZES) -> FoundPoints:
    """Searches for stationary points of system `P` or `C` from `n_solves` starts for each size."""
    parts = []
    for size, (N, M) in enumerate(sizes):
        if system == "P":
            positions = PositionsOnly(N, M, softmax=False).double()
            points, _ = searched(positions, n_solves, INIT_SIGMA)
            family = family_of_positions_only(points, positions.reference_levels())
            zero = torch.ones_like(points.losses)
        else:
            points, tasks = searched(CategoriesOnly(N, M, softmax=False), n_solves, INIT_SIGMA)
            target = tasks["target_NN"]
            zero = target.square().mean((1, 2))
            levels = {"marginal": target.var(dim=1, correction=0).mean(1), "zero": zero}
            family = family_of_categories_only(points, levels)
        family = np.where(points.converged.numpy(), family, "not converged")
        level = (points.losses.detach() / (M - 1) / zero).numpy()
        parts.append(FoundPoints(family, points.index.numpy(), level, np.full(n_solves, size)))
    columns = ([getattr(part, field.name) for part in parts] for field in fields(FoundPoints))
    return FoundPoints(*map(np.concatenate, columns))
