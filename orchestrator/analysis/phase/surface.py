"""The surface of a phase diagram: the probability of an ending at any point of the plane, and its border.

The logit of the probability to end stuck (or with another ending) is a smooth function of the two parameters, each
scaled to -1..1, by its logarithm where the space is logarithmic: `splines.py` says how the function is fitted and how
flexible it is. A trial's weight is its number of trainings; under `Sequential` replication, where this number depends
on how trainings ended, all trials have equal weight.

The band is pointwise: at a place chosen beforehand, the bands of 95 of 100 such sweeps contain the true probability,
provided that the surface is flexible enough; `residuals.py` tests this. If the test fails, no border is drawn, and
`note` begins with the failure.

Axes: T trial, G grid.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from contourpy import contour_generator

from attnsweep.orchestrator.analysis.phase.plane import PlaneAxis, TrialCounts
from attnsweep.orchestrator.analysis.phase.residuals import ResidualBin, binned_residuals
from attnsweep.orchestrator.analysis.phase.splines import Floats, SmoothLogit, expit, fit_smooth
from attnsweep.orchestrator.analysis.rates.ending import STUCK, Ending

_GRID = 101
_FEWEST_TRIALS = 4


@dataclass(frozen=True, eq=False)
class Surface:
    """A fitted surface: the probability of an ending over the plane of two parameters.

    Attributes:
        x, y: The parameters.
        logit: The logit over both parameters, scaled to -1..1.
        quantile: The 97.5% quantile of Student's t, for 95% intervals.
        residuals: Observed and expected shares in cells of the plane.
    """

    x: PlaneAxis
    y: PlaneAxis
    logit: SmoothLogit
    quantile: float
    residuals: tuple[ResidualBin, ...]

    @property
    def dispersion(self) -> float:
        """The ratio of the spread between trials to the spread expected of independent trainings; above 1 means
        dependent trainings or misfit."""
        return self.logit.dispersion

    @property
    def fits(self) -> bool:
        """Whether observed and expected shares agree in all cells. If they do not, no 50% line is drawn."""
        return not any(cell.is_off for cell in self.residuals)

    def at(self, x: float | Floats, y: float | Floats) -> tuple[Floats, Floats, Floats]:
        """Returns the probability at the given points with the bounds of its pointwise 95% band; NaN outside of the
        range tried."""
        places = np.broadcast_arrays(self.x.scaled(np.asarray(x)), self.y.scaled(np.asarray(y)))
        logit, deviation = self.logit.at(*places)
        spread = self.quantile * deviation
        return expit(logit), expit(logit - spread), expit(logit + spread)

    def grid(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Evaluates the surface on a grid: returns x (G,), y (G,), the probability (G, G), and the bounds of its band
        (G, G); rows follow y."""
        return self._grid

    @cached_property
    def _grid(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        axis = np.linspace(-1, 1, _GRID)
        x, y = self.x.values(axis), self.y.values(axis)
        return x, y, *self.at(x[None, :], y[:, None])

    def border_depth(self) -> Floats:
        """Returns how far 1/2 lies inside the probability's 95% band at each point of the grid, (G, G); negative
        outside the band.

        Where all trials end alike the band of the probability may contain 1/2 far from any border, since the logit of a
        share near 0 is hardly known. So only the parts of the band that a border crosses count.
        """
        from scipy import ndimage

        _, _, probability, low, high = self.grid()
        depth = np.minimum(0.5 - low, high - 0.5)
        part, _ = ndimage.label(depth >= 0)
        crossed = np.intersect1d(part[probability >= 0.5], part[probability < 0.5])
        return np.where(np.isin(part, crossed[crossed > 0]), depth, np.minimum(depth, -1e-9))

    def contour(self) -> list[Floats]:
        """Returns the lines of probability 1/2, each an array (n, 2) with columns x and y; none if the surface does
        not fit."""
        if not self.fits:
            return []
        axis = np.linspace(-1, 1, _GRID)
        _, _, probability, _, _ = self.grid()
        lines = contour_generator(axis, axis, probability).lines(0.5)
        return [
            np.column_stack([self.x.values(line[:, 0]), self.y.values(line[:, 1])]) for line in map(np.array, lines)
        ]


def fit_surface(
    x: PlaneAxis, y: PlaneAxis, trials: TrialCounts, weight: Floats, ending: Ending = STUCK
) -> tuple[Surface | None, str]:
    """Fits the surface to the trials, unless these are too few or all end alike.

    Args:
        trials: Trials with at least one training each.
        weight: (T,) the weight of each trial in the fit, in trainings.

    Returns:
        The surface, `None` if there is nothing to fit; and a note that says whether the surface fits and what was
        fitted, or why nothing was.
    """
    from scipy import special

    n_trials, total, n_with = len(trials.n), int(trials.n.sum()), int(trials.k.sum())
    counted = f"{total:,} trainings of {n_trials:,} trials"
    if n_with in (0, total):
        which = "none" if n_with == 0 else "all"
        return None, f"{which} of {counted} {ending.verb}: there is no boundary to fit"
    if x.low == x.high or y.low == y.high:
        same = x.name if x.low == x.high else y.name
        return None, f"{same} is the same in {counted}: there is no plane to fit"
    places = x.scaled(trials.x), y.scaled(trials.y)
    if n_trials < _FEWEST_TRIALS or np.linalg.matrix_rank(np.column_stack([np.ones(n_trials), *places])) < 3:
        return None, f"too few for a model ({counted} in too few places of the plane)"
    logit = fit_smooth(*places, trials.n, trials.k, weight)
    quantile = float(special.stdtrit(max(n_trials - logit.n_effective, 1.0), 0.975))
    surface = Surface(x, y, logit, quantile, binned_residuals(trials, logit.held_out, weight))
    terms = f"{logit.n_effective:.0f} effective terms, chosen by held-out trials"
    note = f"{counted}; logit P({ending.label}) by splines of {terms}"
    if not surface.fits:
        worst = max(surface.residuals, key=lambda cell: cell.off)
        n_off = sum(cell.is_off for cell in surface.residuals)
        shares = f"{worst.k / worst.n:.2f} observed, {worst.expected / worst.n:.2f} expected"
        cells = f"{n_off} of {len(surface.residuals)} cells of the residuals, at worst {shares}"
        note = f"the surface does not fit, so no border is drawn from it ({cells}); {note}"
    return surface, note
