"""The curvature pairs that L-BFGS keeps for each lane. Axes: C slot, L lane, n parameter."""

from collections.abc import Mapping

import torch
from torch import Tensor

_SMALLEST_CURVATURE = 1e-10
_FIRST_CAPACITY = 8


class CurvaturePairs:
    """Each lane's last changes s of the point and y of the gradient, and the inverse Hessian that they approximate.

    Each lane fills its own number of slots, oldest pair first. An empty slot has weight 0 and changes no bit of the
    result, so a lane does not depend on how many pairs the others have.

    Args:
        like: (L, n), gives sizes, type and device.
        most_pairs: The number of pairs kept per lane; older ones are dropped.

    Source: Nocedal & Wright 2006, algorithm 7.4 and equation 7.20; pairs are refused as in `torch.optim.LBFGS`.
    """

    def __init__(self, like: Tensor, most_pairs: int) -> None:
        n_lanes, n_parameters = like.shape
        self._most_pairs = most_pairs
        # Spare slots beyond `most_pairs`: a full lane is shifted to the front only once in many pairs.
        self._most_slots = most_pairs + max(_FIRST_CAPACITY, most_pairs // 4)
        self._s_CLn = like.new_zeros(0, n_lanes, n_parameters)
        self._y_CLn = like.new_zeros(0, n_lanes, n_parameters)
        self._rho_CL = like.new_zeros(0, n_lanes)
        self._scale_L = like.new_ones(n_lanes)
        self._end_L = torch.zeros(n_lanes, dtype=torch.int64, device=like.device)

    def add(self, lanes: Tensor, s: Tensor, y: Tensor) -> None:
        """Stores s and y (L, n) in some lanes, (L,) bool; a pair without positive curvature is skipped."""
        curvature = torch.linalg.vecdot(y, s)
        lanes = lanes & (curvature > _SMALLEST_CURVATURE)
        positions = lanes.nonzero()[:, 0]
        if not positions.numel():
            return
        self._make_room(positions)
        slots = self._end_L[positions]
        self._s_CLn[slots, positions] = s[positions]
        self._y_CLn[slots, positions] = y[positions]
        self._rho_CL[slots, positions] = 1.0 / curvature[positions]
        self._scale_L = torch.where(lanes, curvature / torch.linalg.vecdot(y, y), self._scale_L)
        self._end_L = self._end_L + lanes
        is_full = slots >= self._most_pairs
        self._rho_CL[slots[is_full] - self._most_pairs, positions[is_full]] = 0.0

    def descent_direction(self, gradient: Tensor) -> Tensor:
        """(L, n): minus the inverse Hessian times the gradient (L, n); in a lane without pairs, minus the gradient."""
        q = -gradient
        slots = range(int(self._end_L.max()))
        weights: list[Tensor] = []
        for slot in reversed(slots):
            weight = torch.linalg.vecdot(self._s_CLn[slot], q) * self._rho_CL[slot]
            q.addcmul_(self._y_CLn[slot], weight[:, None], value=-1.0)
            weights.append(weight)
        q.mul_(self._scale_L[:, None])
        for slot in slots:
            weight = weights.pop() - torch.linalg.vecdot(self._y_CLn[slot], q) * self._rho_CL[slot]
            q.addcmul_(self._s_CLn[slot], weight[:, None])
        return q

    def state_dict(self) -> Mapping[str, Tensor]:
        """All pairs, by name: not a copy."""
        return {
            "s": self._s_CLn,
            "y": self._y_CLn,
            "rho": self._rho_CL,
            "scale": self._scale_L,
            "end": self._end_L,
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continues with the pairs of another instance, whose tensors it keeps."""
        self._s_CLn, self._y_CLn, self._rho_CL = state["s"], state["y"], state["rho"]
        self._scale_L, self._end_L = state["scale"], state["end"]

    def select(self, lanes: Tensor) -> None:
        """Keeps only the lanes at these positions, (K,) int64."""
        self._s_CLn, self._y_CLn = self._s_CLn[:, lanes], self._y_CLn[:, lanes]
        self._rho_CL, self._scale_L, self._end_L = self._rho_CL[:, lanes], self._scale_L[lanes], self._end_L[lanes]

    def _make_room(self, positions: Tensor) -> None:
        """Ensures that the lanes at these positions have a free slot at their end."""
        n_slots = self._rho_CL.shape[0]
        crowded = positions[self._end_L[positions] == n_slots]
        if not crowded.numel():
            return
        if n_slots < self._most_slots:
            n_more = min(max(_FIRST_CAPACITY, n_slots), self._most_slots - n_slots)
            self._s_CLn, self._y_CLn, self._rho_CL = (
                torch.cat([table, table.new_zeros(n_more, *table.shape[1:])])
                for table in (self._s_CLn, self._y_CLn, self._rho_CL)
            )
            return
        n_kept = self._most_pairs
        for table in (self._s_CLn, self._y_CLn, self._rho_CL):
            table[:n_kept, crowded] = table[n_slots - n_kept :, crowded]
        self._rho_CL[n_kept:, crowded] = 0.0
        self._end_L[crowded] = n_kept
