"""The triangular form of L-BFGS's walk from curvature pair to curvature pair: to be measured on a GPU, not in use.

`CurvaturePairs` walks from pair to pair: with 100 pairs some 800 small kernels, which a GPU takes longer to launch than
to compute. Here the same recursion is two triangular systems in the products s_i . y_j, which are kept. With g the
gradient, U the upper triangle of these products (pairs ordered from old to new), D its diagonal and c the scale,

    U a = -S^t g,   q = -g - Y a,   U^t b = D a - c Y^t q,   direction = c q + S b.

Axes: L lane, n parameter, C slot (a ring: the next pair takes the place of the oldest), O pair from old to new.
Source: Byrd, Nocedal & Schnabel 1994, theorem 2.2; Nocedal & Wright 2006, algorithm 7.4, whose recursion this is.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnsweep.workloads.engine.quasi_newton import _SMALLEST_CURVATURE

_EVEN = 4
"""Rows have a multiple of so many numbers: all lanes' begin at places of one kind (`even_rows`)."""


class RingOfPairs:
    """See `CurvaturePairs`, whose methods these are. An empty slot is a pair of zeros, which changes nothing.

    Args:
        like: (L, n), gives sizes, type and device.
        most_pairs: C, the number of pairs kept per lane.
    """

    def __init__(self, like: Tensor, most_pairs: int) -> None:
        n_lanes, n = like.shape
        self._n = n
        self._s_LCn = like.new_zeros(n_lanes, most_pairs, n + -n % _EVEN)
        self._y_LCn = torch.zeros_like(self._s_LCn)
        self._products_LCC = like.new_zeros(n_lanes, most_pairs, most_pairs)
        self._scale_L = like.new_ones(n_lanes)
        self._next_L = torch.zeros(n_lanes, dtype=torch.int64, device=like.device)

    def counts(self) -> Tensor:
        """Nothing that the host must know: zeros (2,)."""
        return self._next_L.new_zeros(2)

    def set_counts(self, n_used: int, n_full: int) -> None:
        """Takes note of nothing."""

    def add(self, lanes: Tensor, s: Tensor, y: Tensor) -> None:
        """Stores s and y (L, n) in some lanes, (L,) bool; a pair without positive curvature is skipped."""
        curvature = torch.linalg.vecdot(y, s)
        lanes = lanes & (curvature > _SMALLEST_CURVATURE)
        here = (torch.arange(len(lanes), device=lanes.device), self._next_L)
        for table, values in ((self._s_LCn, s), (self._y_LCn, y)):
            table[here] = torch.where(lanes[:, None], self._even(values), table[here])
        # Only products of a pair with newer ones are used, so those of the new one with older ones need not be known.
        column_LC = (self._s_LCn @ self._even(y)[:, :, None])[:, :, 0]
        at = (here[0], slice(None), self._next_L)
        self._products_LCC[at] = torch.where(lanes[:, None], column_LC, self._products_LCC[at])
        self._scale_L = torch.where(lanes, curvature / torch.linalg.vecdot(y, y), self._scale_L)
        self._next_L = (self._next_L + lanes) % self._s_LCn.shape[1]

    def descent_direction(self, gradient: Tensor) -> Tensor:
        """(L, n): minus the inverse Hessian times the gradient (L, n); in a lane without pairs, minus the gradient."""
        n_slots, scale_L11 = self._s_LCn.shape[1], self._scale_L[:, None, None]
        ring_C = torch.arange(n_slots, device=gradient.device)
        slot_LO, age_LC = ((ring_C + sign * self._next_L[:, None]) % n_slots for sign in (1, -1))
        ordered = self._products_LCC.gather(1, slot_LO[:, :, None].expand_as(self._products_LCC))
        upper_LOO = ordered.gather(2, slot_LO[:, None].expand_as(ordered)).triu()
        curvature_LO = upper_LOO.diagonal(dim1=1, dim2=2)
        upper_LOO = upper_LOO + torch.diag_embed((curvature_LO == 0).to(gradient.dtype))

        start_Ln1 = -self._even(gradient)[:, :, None]
        asked_LO1 = (self._s_LCn @ start_Ln1).gather(1, slot_LO[:, :, None])
        first_LO1 = torch.linalg.solve_triangular(upper_LOO, asked_LO1, upper=True)
        q_Ln1 = start_Ln1 - self._y_LCn.mT @ first_LO1.gather(1, age_LC[:, :, None])
        left_LO1 = (scale_L11 * (self._y_LCn @ q_Ln1)).gather(1, slot_LO[:, :, None])
        second_LO1 = torch.linalg.solve_triangular(
            upper_LOO.mT, curvature_LO[:, :, None] * first_LO1 - left_LO1, upper=False
        )
        direction_Ln1: Tensor = scale_L11 * q_Ln1 + self._s_LCn.mT @ second_LO1.gather(1, age_LC[:, :, None])
        return direction_Ln1[:, : self._n, 0]

    def state_dict(self) -> Mapping[str, Tensor]:
        """All pairs, by name: not a copy."""
        return {
            "s": self._s_LCn,
            "y": self._y_LCn,
            "products": self._products_LCC,
            "scale": self._scale_L,
            "next": self._next_L,
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continues with the pairs of another instance, whose tensors it keeps."""
        self._s_LCn, self._y_LCn, self._products_LCC = state["s"], state["y"], state["products"]
        self._scale_L, self._next_L = state["scale"], state["next"]

    def select(self, lanes: Tensor) -> None:
        """Keeps only the lanes at these positions, (K,) int64."""
        self.load_state_dict({name: value[lanes] for name, value in self.state_dict().items()})

    def _even(self, values_Ln: Tensor) -> Tensor:
        """(L, n) with zeros behind, as wide as the tables."""
        return pad(values_Ln, (0, -self._n % _EVEN))
