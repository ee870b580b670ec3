"""The search of `shin-zeros` for stationary points of systems P and C, and the families that the theory knows.

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
"""(N, M) of the searches; small, because the full Hessian is computed."""
SOLVES_PER_SIZE = 200
INIT_SIGMA = 1.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A stationary family, as derived.

    Attributes:
        level: Loss per predicted position, as a formula.
        indices: Hessian indices that its points may have.
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
    """The points at which the solves of one system ended.

    Attributes:
        family: (L,) of `FAMILIES`; `none` for a stationary point of no known family; `not converged`.
        index: (L,) Hessian index.
        level: (L,) level, as a share of the level of the zero.
        size: (L,) index into `SIZES`.
    """

    family: NDArray[np.str_]
    index: NDArray[np.int64]
    level: NDArray[np.float64]
    size: NDArray[np.int64]


def find_points(system: str, n_solves: int, sizes: Sequence[tuple[int, int]] = SIZES) -> FoundPoints:
    """Solves for stationary points of system `P` or `C`, `n_solves` times for each size."""
    parts = []
    for size, (N, M) in enumerate(sizes):
        if system == "P":
            positions = PositionsOnly(N, M, softmax=False).double()
            found, _ = searched(positions, n_solves, INIT_SIGMA)
            family = family_of_positions_only(found, positions.reference_levels())
            zero = torch.ones_like(found.losses)
        else:
            found, tasks = searched(CategoriesOnly(N, M, softmax=False), n_solves, INIT_SIGMA)
            target = tasks["target_NN"]
            zero = target.square().mean((1, 2))
            levels = {"marginal": target.var(dim=1, correction=0).mean(1), "zero": zero}
            family = family_of_categories_only(found, levels)
        family = np.where(found.converged.numpy(), family, "not converged")
        level = (found.losses.detach() / (M - 1) / zero).numpy()
        parts.append(FoundPoints(family, found.index.numpy(), level, np.full(n_solves, size)))
    columns = ([getattr(part, each.name) for part in parts] for each in fields(FoundPoints))
    return FoundPoints(*map(np.concatenate, columns))
