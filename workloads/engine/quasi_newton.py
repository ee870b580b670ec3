"""The pairs (change of point, change of gradient) from which L-BFGS estimates curvature. Axes: C slot (place for a
pair), L training (lane), n parameter."""

from collections.abc import Mapping

import torch
from torch import Tensor

_SMALLEST_CURVATURE = 1e-10
_FIRST_CAPACITY = 8


class CurvaturePairs:
    """The latest `most_pairs` pairs of each training, from which L-BFGS approximates the inverse Hessian.

    Every training has the same number of slots, and fills some of them, oldest pair first. An empty slot has weight 0
    and changes no bit of the result, so a training does not depend on how many pairs the others have. How many are in
    use only the device knows: the caller reads `counts` and passes them to `set_counts` before every `add`.

    Source: Nocedal & Wright 2006, algorithm 7.4 and equation 7.20; pairs are refused like in `torch.optim.LBFGS`.
    """

    def __init__(self, like: Tensor, most_pairs: int) -> None:
        n_lanes, n_parameters = like.shape
        self._most_pairs = most_pairs
        # Room for more than `most_pairs`, so that pairs are moved to the front only when it is full.
        self._most_slots = most_pairs + max(_FIRST_CAPACITY, most_pairs // 4)
        self._s_CLn = like.new_zeros(0, n_lanes, n_parameters)
        self._y_CLn = like.new_zeros(0, n_lanes, n_parameters)
        self._rho_CL = like.new_zeros(0, n_lanes)
        self._scale_L = like.new_ones(n_lanes)
        self._end_L = torch.zeros(n_lanes, dtype=torch.int64, device=like.device)
        self._lane_L = torch.arange(n_lanes, device=like.device)
        self._n_used = self._n_full = 0

    def counts(self) -> Tensor:
        """On the device: the most slots that any training uses, and how many trainings use all of theirs."""
        return torch.stack([self._end_L.max(), (self._end_L == self._most_slots).sum()])

    def set_counts(self, n_used: int, n_full: int) -> None:
        """Takes the two numbers of `counts`."""
        self._n_used, self._n_full = n_used, n_full

    def add(self, lanes: Tensor, s: Tensor, y: Tensor) -> None:
        """Stores a new pair for each training that `lanes` marks, except one without positive curvature."""
        self._make_room()
        curvature = torch.linalg.vecdot(y, s)
        lanes = lanes & (curvature > _SMALLEST_CURVATURE)
        # A training without a new pair writes zeros to its first free slot: the host need not know which have one.
        here = (self._end_L, self._lane_L)
        self._s_CLn[here] = s.masked_fill(~lanes[:, None], 0.0)
        self._y_CLn[here] = y.masked_fill(~lanes[:, None], 0.0)
        self._rho_CL[here] = (1.0 / curvature).masked_fill(~lanes, 0.0)
        self._scale_L = torch.where(lanes, curvature / torch.linalg.vecdot(y, y), self._scale_L)
        is_beyond = lanes & (self._end_L >= self._most_pairs)
        oldest = ((self._end_L - self._most_pairs).clamp(min=0), self._lane_L)
        self._rho_CL[oldest] = self._rho_CL[oldest].masked_fill(is_beyond, 0.0)
        self._end_L = self._end_L + lanes
        self._n_used = min(self._n_used + 1, self._rho_CL.shape[0])

    def descent_direction(self, gradient: Tensor) -> Tensor:
        """Minus the gradient times the approximate inverse Hessian, which is the identity without pairs."""
        q = -gradient
        slots = range(self._n_used)
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
        return {"s": self._s_CLn, "y": self._y_CLn, "rho": self._rho_CL, "scale": self._scale_L, "end": self._end_L}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._s_CLn, self._y_CLn, self._rho_CL = state["s"], state["y"], state["rho"]
        self._scale_L, self._end_L = state["scale"], state["end"]
        self._read_counts()

    def select(self, lanes: Tensor) -> None:
        self._s_CLn, self._y_CLn = self._s_CLn[:, lanes], self._y_CLn[:, lanes]
        self._rho_CL, self._scale_L, self._end_L = self._rho_CL[:, lanes], self._scale_L[lanes], self._end_L[lanes]
        self._read_counts()

    def _read_counts(self) -> None:
        self._lane_L = torch.arange(len(self._end_L), device=self._end_L.device)
        self.set_counts(*self.counts().tolist())

    def _make_room(self) -> None:
        n_slots = self._rho_CL.shape[0]
        if n_slots < self._most_slots:
            if self._n_used == n_slots:
                self._grow(min(max(_FIRST_CAPACITY, n_slots), self._most_slots - n_slots))
            return
        if not self._n_full:
            return
        full = torch.nonzero_static(self._end_L == self._most_slots, size=self._n_full)[:, 0]
        n_kept = self._most_pairs
        for table in (self._s_CLn, self._y_CLn, self._rho_CL):
            table[:n_kept, full] = table[n_slots - n_kept :, full]
        self._rho_CL[n_kept:, full] = 0.0
        self._end_L[full] = n_kept

    def _grow(self, n_more: int) -> None:
        self._s_CLn, self._y_CLn, self._rho_CL = (
            torch.cat([table, table.new_zeros(n_more, *table.shape[1:])])
            for table in (self._s_CLn, self._y_CLn, self._rho_CL)
        )
