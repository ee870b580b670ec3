"""The probability of an ending as a smooth function of two parameters: the line where it is 1/2, and whether it fits.

The logit is fitted by `search_spaces/surface.py` over parameters scaled to -1..1, by their logarithm where the space is
logarithmic. A trial's weight is its number of trainings, or the same for all under `Sequential`, where that number
depends on how trainings ended. The band is pointwise.

The residuals test the surface. A trial's expected share is predicted from trials at other places. The plane is divided
into cells of about equally many trials: 4 x 4 up to 300 trials, and 1.2 T^(1/4) along each axis beyond. The surface
does not fit if in any cell the observed and expected shares differ by more than 0.05 beyond chance; then no line is
drawn. Chance is Student's t of the spread between the cell's trials, at least that of independent trainings; a false
alarm in any cell has a probability of at most 0.01 (Bonferroni).

Axes: T trial, G grid.
Source: Gelman et al. 2000 (binned residuals).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from contourpy import contour_generator
from numpy.typing import NDArray

from attnsweep.search_spaces.surface import Floats, SmoothLogit, expit


@dataclass(frozen=True, slots=True)
class PlaneAxis:
    """One of the two parameters; `low` and `high` are the ends of the range tried."""

    name: str
    log: bool
    low: float
    high: float

    def scaled(self, values: Floats) -> Floats:
        """The range tried becomes -1..1, linearly."""
        if self.log:
            with np.errstate(divide="ignore"):  # 0 becomes -inf
                return np.asarray(2 * np.log(values / self.low) / np.log(self.high / self.low) - 1)
        return np.asarray(2 * (values - self.low) / (self.high - self.low) - 1)

    def values(self, scaled: Floats) -> Floats:
        """The inverse of `scaled`."""
        share = (np.asarray(scaled) + 1) / 2
        if self.log:
            return np.asarray(self.low * (self.high / self.low) ** share)
        return np.asarray(self.low + (self.high - self.low) * share)


@dataclass(frozen=True, eq=False, slots=True)
class TrialCounts:
    """One entry per trial: the two parameters, its trainings, and those with the ending."""

    x: Floats
    y: Floats
    n: Floats
    k: Floats


_MIN_CELLS, _CELLS, _TOLERANCE, _FALSE_ALARM = 4, 1.2, 0.05, 0.01


@dataclass(frozen=True, slots=True)
class ResidualBin:
    """One cell: its trials, trainings, those with the ending, and those expected.

    Attributes:
        z: (k - expected) over its standard deviation, which is at least that of independent trainings; `None` for one
            trial, or if that is 0.
        off: The part of the difference between the shares that chance does not explain, given the number of cells.
    """

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    n_trials: int
    n: int
    k: int
    expected: float
    z: float | None
    off: float

    @property
    def is_off(self) -> bool:
        return self.off > _TOLERANCE


def binned_residuals(trials: TrialCounts, expected: Floats, weight: Floats) -> tuple[ResidualBin, ...]:
    from scipy import special

    n_bins = max(_MIN_CELLS, int(_CELLS * len(trials.x) ** 0.25))
    cells = []
    for x_low, x_high, in_column in _ranges(trials.x, n_bins):
        for y_low, y_high, in_row in _ranges(trials.y[in_column], n_bins):
            cells.append(((x_low, x_high, y_low, y_high), np.flatnonzero(in_column)[in_row]))
    bins = []
    for ends, inside in cells:
        n_T, k_T, share_T, weight_T = trials.n[inside], trials.k[inside], expected[inside], weight[inside]
        residual_T, n_trials = weight_T * (k_T / n_T - share_T), len(inside)
        # The variance of the residuals' sum: that between trials, at least that of independent trainings.
        between = n_trials * residual_T.var(ddof=1) if n_trials > 1 else 0.0
        spread = float(np.sqrt(max(between, (np.square(weight_T) / n_T * share_T * (1 - share_T)).sum())))
        z, off = None, 0.0
        if n_trials > 1 and spread > 0:
            by_chance = float(special.stdtrit(n_trials - 1, 1 - _FALSE_ALARM / len(cells) / 2)) * spread
            z, off = float(residual_T.sum() / spread), float((abs(residual_T.sum()) - by_chance) / weight_T.sum())
        counts = n_trials, int(n_T.sum()), int(k_T.sum()), float((n_T * share_T).sum())
        bins.append(ResidualBin(*ends, *counts, z, max(off, 0.0)))
    return tuple(bins)


def _ranges(values: Floats, n_bins: int) -> Iterator[tuple[float, float, NDArray[np.bool_]]]:
    """Up to `n_bins` of about equally many values."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, n_bins + 1)))
    edges = np.append(edges, edges) if len(edges) == 1 else edges
    bin_T = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    for number in np.unique(bin_T):
        yield float(edges[number]), float(edges[number + 1]), bin_T == number


_GRID = 101


@dataclass(frozen=True, eq=False)
class Surface:
    """The fitted probability. `quantile`: 97.5% of Student's t, for 95% intervals."""

    x: PlaneAxis
    y: PlaneAxis
    logit: SmoothLogit
    quantile: float
    residuals: tuple[ResidualBin, ...]

    @property
    def dispersion(self) -> float:
        """The trials' scatter over that of independent trainings. Above 1, trainings of a trial end alike, or the fit
        is poor."""
        return self.logit.dispersion

    @property
    def fits(self) -> bool:
        """Whether it agrees with the observed share in every cell."""
        return not any(cell.is_off for cell in self.residuals)

    def at(self, x: float | Floats, y: float | Floats) -> tuple[Floats, Floats, Floats]:
        """The probability and the ends of its pointwise 95% band; NaN outside of the range tried."""
        places = np.broadcast_arrays(self.x.scaled(np.asarray(x)), self.y.scaled(np.asarray(y)))
        points = np.stack([np.ravel(each) for each in places], axis=1)
        inside = (np.abs(points) <= 1 + 1e-9).all(axis=1)
        logit, spread = np.full((2, len(points)), np.nan)
        logit[inside], spread[inside] = self.logit.at(points[inside])
        spread *= self.quantile
        ends = (expit(each).reshape(places[0].shape) for each in (logit, logit - spread, logit + spread))
        return next(ends), next(ends), next(ends)

    @cached_property
    def grid(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """x and y, (G,) each; the probability and the ends of its band, (G, G) each, y first."""
        axis = np.linspace(-1, 1, _GRID)
        x, y = self.x.values(axis), self.y.values(axis)
        return x, y, *self.at(x[None, :], y[:, None])

    def border_depth(self) -> Floats:
        """How far 1/2 lies inside the 95% band at each point of the grid, from the nearer end; negative outside.

        Where all trials end alike, the band may contain 1/2 far from any border, since the logit of a share near 0 is
        hardly known. So only parts that a border crosses count as inside.
        """
        from scipy import ndimage

        _, _, probability, low, high = self.grid
        depth = np.minimum(0.5 - low, high - 0.5)
        part, _ = ndimage.label(depth >= 0)
        crossed = np.intersect1d(part[probability >= 0.5], part[probability < 0.5])
        return np.where(np.isin(part, crossed[crossed > 0]), depth, np.minimum(depth, -1e-9))

    def contour(self) -> list[Floats]:
        """The lines of probability 1/2, each (n, 2) with columns x and y; none if the surface does not fit."""
        if not self.fits:
            return []
        axis = np.linspace(-1, 1, _GRID)
        probability = self.grid[2]
        lines = map(np.array, contour_generator(axis, axis, probability).lines(0.5))
        return [np.column_stack([self.x.values(line[:, 0]), self.y.values(line[:, 1])]) for line in lines]
