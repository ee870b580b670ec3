"""Strong-Wolfe line searches of many lanes. All tensors are (L,), but for gradients, (L, n): L lane, n parameter."""

from typing import NamedTuple

import torch
from torch import Tensor

ARMIJO, CURVATURE = 1e-4, 0.9


class Points(NamedTuple):
    """One point on each lane's search line; `at` is its step size."""

    at: Tensor
    loss: Tensor
    slope: Tensor
    gradient: Tensor


class LineSearches:
    """Line searches, each along its own direction and at its own stage.

    A search first looks for a bracket, then zooms into it. It stores two points: first the last two trial points, later
    the ends of the bracket. While it `is_open` it is evaluated next at `step_size`; `direction_size` is the direction's
    largest absolute component. The decisions, comparisons with NaN included, are those of
    `torch.optim.lbfgs._strong_wolfe` (bracketing and zoom: Nocedal & Wright 2006, algorithms 3.5 and 3.6; the rule
    against slow progress: minFunc's).
    """

    def __init__(self, gradient: Tensor, tolerance_change: float) -> None:
        zeros = gradient.new_zeros(gradient.shape[0])
        no = torch.zeros_like(zeros, dtype=torch.bool)
        self._tolerance_change = tolerance_change
        # Attributes may share a tensor, because no method changes one in place.
        self.step_size, self.is_open = zeros, no
        self.n_evaluations = self._most_evaluations = torch.zeros_like(zeros, dtype=torch.int64)
        self.direction_size = zeros
        self._is_zooming = self._was_slow = no
        self._start = self._first = self._second = Points(zeros, zeros, zeros, gradient)
        self._low = no
        """Whether the second of the two stored points has the lower loss."""

    def begin(
        self, lanes: Tensor, step_size: Tensor, start: Points, direction_size: Tensor, most_interpolations: Tensor
    ) -> None:
        """Starts searches in the lanes that `lanes` marks; those under way need the arguments with which they
        began. `start` is the point at step size 0. At most `most_interpolations` trials, int64, follow the first."""
        self._start, self.direction_size = start, direction_size
        self._most_evaluations = most_interpolations + 1
        self.is_open = self.is_open | lanes
        self.step_size = torch.where(lanes, step_size, self.step_size)
        self.n_evaluations = self.n_evaluations.masked_fill(lanes, 0)
        self._is_zooming = self._is_zooming & ~lanes
        self._was_slow = self._was_slow & ~lanes
        self._first = _where(lanes, start, self._first)

    def observe(self, loss: Tensor, gradient: Tensor, slope: Tensor) -> Tensor:
        """Continues open searches with what was evaluated at their step sizes. Returns which ended."""
        trial, was_open = Points(self.step_size, loss, slope, gradient), self.is_open
        self.n_evaluations = self.n_evaluations + was_open
        spent = was_open & (self.n_evaluations >= self._most_evaluations)
        zooming = was_open & self._is_zooming
        is_accepted = self._zoom(zooming, trial) | self._bracket(was_open & ~zooming, spent, trial)
        self.is_open = was_open & ~is_accepted & ~spent
        self._interpolate(self.is_open & self._is_zooming)
        return was_open & ~self.is_open

    def found(self) -> Points:
        """The results of ended searches: the stored point with the lower loss."""
        return _where(self._low, self._second, self._first)

    def _bracket(self, lanes: Tensor, spent: Tensor, trial: Points) -> Tensor:
        """Seeks brackets; with no trials left, it is the whole line to the trial. Returns which trials suffice."""
        last = self._first
        rises = self._rises(trial) | ((self.n_evaluations > 2) & (trial.loss >= last.loss))
        accepted = lanes & ~spent & ~rises & self._is_flat(trial)
        enclosed = lanes & ~spent & ~accepted & (rises | (trial.slope >= 0))
        goes_on = lanes & ~spent & ~accepted & ~enclosed

        beyond = (trial.at + 0.01 * (trial.at - last.at), trial.at * 10)
        self.step_size = torch.where(goes_on, cubic_minimum(last, trial, *beyond), trial.at)
        self._first = _where(goes_on, trial, _where(lanes & spent, self._start, last))
        self._second = _where(lanes, trial, self._second)
        self._is_zooming = self._is_zooming | enclosed
        self._low = torch.where(lanes, ~(self._first.loss <= trial.loss) | accepted, self._low)
        return accepted

    def _zoom(self, lanes: Tensor, trial: Points) -> Tensor:
        """Narrows brackets by the trial. Returns which trials suffice."""
        first, second, low = self._first, self._second, self._low
        rises = self._rises(trial) | (trial.loss >= torch.where(low, second.loss, first.loss))
        too_high, lower = lanes & rises, lanes & ~rises
        accepted = lower & self._is_flat(trial)
        to_high = torch.where(low, first.at - second.at, second.at - first.at)
        # The loss falls away from the high end: the low end becomes the high one.
        turned = lower & ~accepted & (trial.slope * to_high >= 0)
        # A trial too high replaces the high end, another the low one.
        replaces_second = low ^ too_high
        self._first = _where(lanes & ~replaces_second, trial, _where(turned & low, second, first))
        self._second = _where(lanes & replaces_second, trial, _where(turned & ~low, first, second))
        self._low = torch.where(too_high, ~(self._first.loss <= self._second.loss), low)
        return accepted

    def _interpolate(self, lanes: Tensor) -> None:
        """Sets the next trials, at some distance from the ends after slow progress; ends searches of tiny brackets."""
        left, right = (bound(self._first.at, self._second.at) for bound in (torch.minimum, torch.maximum))
        too_small = lanes & ((right - left) * self.direction_size < self._tolerance_change)
        self.is_open = self.is_open & ~too_small
        at = cubic_minimum(self._first, self._second, left, right)
        margin = 0.1 * (right - left)
        is_slow = torch.minimum(right - at, at - left) < margin
        pushed = is_slow & (self._was_slow | (at >= right) | (at <= left))
        inside = torch.where((at - right).abs() < (at - left).abs(), right - margin, left + margin)
        self.step_size = torch.where(lanes, torch.where(pushed, inside, at), self.step_size)
        self._was_slow = torch.where(lanes, is_slow & ~pushed, self._was_slow)

    def _rises(self, trial: Points) -> Tensor:
        return trial.loss > self._start.loss + ARMIJO * trial.at * self._start.slope

    def _is_flat(self, trial: Points) -> Tensor:
        """The curvature condition of strong Wolfe."""
        return trial.slope.abs() <= -CURVATURE * self._start.slope


def cubic_minimum(one: Points, other: Points, lowest: Tensor, highest: Tensor) -> Tensor:
    """The step size, clipped to bounds, at which the cubic through two points with their slopes is minimal; the bounds'
    middle if it has no minimum. Source: Nocedal & Wright 2006, equation 3.59."""
    is_ordered = one.at <= other.at
    x1, x2 = torch.where(is_ordered, one.at, other.at), torch.where(is_ordered, other.at, one.at)
    g1, g2 = torch.where(is_ordered, one.slope, other.slope), torch.where(is_ordered, other.slope, one.slope)
    d1 = one.slope + other.slope - 3 * (one.loss - other.loss) / (one.at - other.at)
    square = d1.square() - g1 * g2
    d2 = square.sqrt()
    minimum = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    inside = torch.minimum(torch.maximum(minimum, lowest), highest)
    return torch.where(square >= 0, inside, (lowest + highest) / 2)


def _where(lanes: Tensor, points: Points, otherwise: Points) -> Points:
    at, loss, slope = (torch.where(lanes, *pair) for pair in zip(points[:3], otherwise[:3], strict=True))
    return Points(at, loss, slope, torch.where(lanes[:, None], points.gradient, otherwise.gradient))
