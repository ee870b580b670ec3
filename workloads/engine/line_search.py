"""Strong-Wolfe line searches, one per lane, each at a stage of its own. Axes: L lane, 2 bracket end, n parameter.

Every evaluation of the pack gives each search one function value: one lane may look for a bracket while another zooms
and a third begins a new search. The decisions, comparisons with NaN included, are those of PyTorch's
`torch.optim.lbfgs._strong_wolfe` (bracketing and zoom: Nocedal & Wright 2006, algorithms 3.5 and 3.6; cubic
interpolation: their equation 3.59; the rule against slow progress: minFunc's).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

ARMIJO = 1e-4
CURVATURE = 0.9


class LineSearches:
    """The line searches of L lanes along their directions.

    The two ends of a search are the last two points tried while it brackets, and the bracket while it zooms.

    Attributes:
        step_size: (L,) the step at which each search wants its next evaluation; in a closed search, the step found.
        is_open: (L,) bool, whether the search wants an evaluation.
        n_evaluations: (L,) int64, evaluations of the current search.
    """

    def __init__(self, gradient: Tensor, tolerance_change: float) -> None:
        n_lanes = gradient.shape[0]
        scalar, pair = gradient.new_zeros(n_lanes), gradient.new_zeros(n_lanes, 2)
        flags = torch.zeros(n_lanes, dtype=torch.bool, device=gradient.device)
        self._tolerance_change = tolerance_change
        self.step_size, self.is_open = scalar.clone(), flags.clone()
        self.n_evaluations = torch.zeros_like(self.step_size, dtype=torch.int64)
        self._most_evaluations = torch.zeros_like(self.n_evaluations)
        self._start_loss, self._start_slope, self._start_gradient = scalar.clone(), scalar.clone(), gradient.clone()
        self._direction_size = scalar.clone()
        self._is_zooming, self._was_slow = flags.clone(), flags.clone()
        self._low = flags.clone()  # True: end 1 is the lower
        self._at, self._loss, self._slope = pair.clone(), pair.clone(), pair.clone()
        self._gradient = torch.stack([gradient, gradient], dim=1)

    def begin(
        self,
        lanes: Tensor,
        step_size: Tensor,
        start: tuple[Tensor, Tensor, Tensor],
        direction: Tensor,
        most_interpolations: Tensor,
    ) -> None:
        """Opens a search in some lanes.

        Args:
            lanes: (L,) bool, the lanes whose search begins.
            step_size: (L,) first trials.
            start: Loss (L,), gradient (L, n) and slope (L,) at step size 0.
            direction: (L, n).
            most_interpolations: (L,) int64, the most trials after the first.
        """
        loss, gradient, slope = start
        self.is_open = self.is_open | lanes
        self.step_size = torch.where(lanes, step_size, self.step_size)
        self.n_evaluations = self.n_evaluations.masked_fill(lanes, 0)
        self._most_evaluations = torch.where(lanes, most_interpolations + 1, self._most_evaluations)
        self._start_loss = torch.where(lanes, loss, self._start_loss)
        self._start_slope = torch.where(lanes, slope, self._start_slope)
        self._start_gradient = torch.where(lanes[:, None], gradient, self._start_gradient)
        self._direction_size = torch.where(lanes, direction.abs().amax(1), self._direction_size)
        self._is_zooming = self._is_zooming & ~lanes
        self._was_slow = self._was_slow & ~lanes
        self._return_to_start(lanes)

    def observe(self, loss: Tensor, gradient: Tensor, slope: Tensor) -> Tensor:
        """Continues every open search with the values at its `step_size`; (L,) bool, true where a search just ended."""
        was_open = self.is_open
        self.n_evaluations = self.n_evaluations + was_open
        zooming = was_open & self._is_zooming
        found = self._zoom(zooming, loss, gradient, slope)
        found = found | self._bracket(was_open & ~self._is_zooming, loss, gradient, slope)
        spent = zooming & (self.n_evaluations >= self._most_evaluations)
        self.is_open = self.is_open & ~found & ~spent
        self._interpolate(self.is_open & self._is_zooming)
        ended = was_open & ~self.is_open
        self.step_size = torch.where(ended, self._of(self._at, self._low), self.step_size)
        return ended

    def found(self) -> tuple[Tensor, Tensor]:
        """Loss (L,) and gradient (L, n) at the lower end: of the step found, where a search has ended."""
        lower = torch.where(self._low[:, None], self._gradient[:, 1], self._gradient[:, 0])
        return self._of(self._loss, self._low), lower

    def state_dict(self) -> Mapping[str, Tensor]:
        """The state of all searches, (L, ...) by name: not a copy."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continues from the state of other searches, whose tensors it keeps."""
        for name in self.state_dict():
            setattr(self, name, state[name])

    def select(self, lanes: Tensor) -> None:
        """Keeps only the lanes at these positions, (K,) int64."""
        self.load_state_dict({name: value[lanes] for name, value in self.state_dict().items()})

    def _bracket(self, lanes: Tensor, loss: Tensor, gradient: Tensor, slope: Tensor) -> Tensor:
        """Uses the trials of bracketing lanes; true where the search is over."""
        at = self.step_size
        last_loss, last_at = self._loss[:, 0], self._at[:, 0]
        self._set_end(1, lanes, at, loss, gradient, slope)
        rises = self._rises(loss) | ((self.n_evaluations > 2) & (loss >= last_loss))
        is_flat = slope.abs() <= -CURVATURE * self._start_slope
        spent = lanes & (self.n_evaluations >= self._most_evaluations)
        accepted = lanes & ~spent & ~rises & is_flat
        enclosed = lanes & ~spent & ~accepted & (rises | (slope >= 0))
        goes_on = lanes & ~spent & ~accepted & ~enclosed

        beyond = (at + 0.01 * (at - last_at), at * 10)
        further = cubic_minimum(self._at, self._loss, self._slope, *beyond)
        self.step_size = torch.where(goes_on, further, at)
        self._copy_end(0, goes_on)
        self._return_to_start(spent)
        self._is_zooming = self._is_zooming | enclosed
        self._low = torch.where(lanes, ~(self._loss[:, 0] <= self._loss[:, 1]) | accepted, self._low)
        return accepted | spent

    def _zoom(self, lanes: Tensor, loss: Tensor, gradient: Tensor, slope: Tensor) -> Tensor:
        """Uses the trials of zooming lanes; true where the search is over."""
        low, high = self._low, ~self._low
        too_high = lanes & (self._rises(loss) | (loss >= self._of(self._loss, low)))
        lower = lanes & ~too_high
        accepted = lower & (slope.abs() <= -CURVATURE * self._start_slope)
        turned = slope * (self._of(self._at, high) - self._of(self._at, low)) >= 0
        is_moved = lower & ~accepted & turned
        self._copy_end(0, is_moved & ~high)
        self._copy_end(1, is_moved & high)
        is_set = torch.where(too_high, high, low)
        self._set_end(0, lanes & ~is_set, self.step_size, loss, gradient, slope)
        self._set_end(1, lanes & is_set, self.step_size, loss, gradient, slope)
        self._low = torch.where(too_high, ~(self._loss[:, 0] <= self._loss[:, 1]), self._low)
        return accepted

    def _interpolate(self, lanes: Tensor) -> None:
        """Sets the next trial of zooming lanes, or closes their search where the bracket is too small."""
        left, right = self._at.amin(1), self._at.amax(1)
        too_small = lanes & ((right - left) * self._direction_size < self._tolerance_change)
        self.is_open = self.is_open & ~too_small
        at = cubic_minimum(self._at, self._loss, self._slope, left, right)
        margin = 0.1 * (right - left)
        is_slow = torch.minimum(right - at, at - left) < margin
        pushed = is_slow & (self._was_slow | (at >= right) | (at <= left))
        inside = torch.where((at - right).abs() < (at - left).abs(), right - margin, left + margin)
        self.step_size = torch.where(lanes, torch.where(pushed, inside, at), self.step_size)
        self._was_slow = torch.where(lanes, is_slow & ~pushed, self._was_slow)

    def _rises(self, loss: Tensor) -> Tensor:
        """True where the condition of sufficient decrease fails."""
        return loss > self._start_loss + ARMIJO * self.step_size * self._start_slope

    def _return_to_start(self, lanes: Tensor) -> None:
        start = (self._start_loss, self._start_gradient, self._start_slope)
        self._set_end(0, lanes, torch.zeros_like(self.step_size), *start)

    def _set_end(self, end: int, lanes: Tensor, at: Tensor, loss: Tensor, gradient: Tensor, slope: Tensor) -> None:
        """Puts a point at one end of the lanes' brackets."""
        # Masked: to pick rows, the host would have to know how many there are.
        for table, values in ((self._at, at), (self._loss, loss), (self._slope, slope)):
            torch.where(lanes, values, table[:, end], out=table[:, end])
        torch.where(lanes[:, None], gradient, self._gradient[:, end], out=self._gradient[:, end])

    def _copy_end(self, end: int, lanes: Tensor) -> None:
        """Copies the point of the other end of the lanes' brackets to this one."""
        points = (values[:, 1 - end] for values in (self._at, self._loss, self._gradient, self._slope))
        self._set_end(end, lanes, *points)

    @staticmethod
    def _of(values: Tensor, end: Tensor) -> Tensor:
        return torch.where(end, values[:, 1], values[:, 0])


def cubic_minimum(at: Tensor, loss: Tensor, slope: Tensor, lowest: Tensor, highest: Tensor) -> Tensor:
    """(L,) minima of the cubics through two points each, kept inside bounds; their middle where there is none.

    Args:
        at, loss, slope: (L, 2), the points in any order.
        lowest, highest: (L,).

    Source: Nocedal & Wright 2006, equation 3.59.
    """
    is_ordered = (at[:, 0] <= at[:, 1])[:, None]
    (x1, x2), (g1, g2) = (torch.where(is_ordered, values, values.flip(1)).unbind(1) for values in (at, slope))
    d1 = slope[:, 0] + slope[:, 1] - 3 * (loss[:, 0] - loss[:, 1]) / (at[:, 0] - at[:, 1])
    square = d1.square() - g1 * g2
    d2 = square.sqrt()
    minimum = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    inside = torch.minimum(torch.maximum(minimum, lowest), highest)
    return torch.where(square >= 0, inside, (lowest + highest) / 2)
