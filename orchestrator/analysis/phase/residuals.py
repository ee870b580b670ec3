"""The residuals of a phase diagram's surface: observed against expected. Axes: T trial.

Source: Gelman et al. 2000 (binned residuals).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.phase.surface import Floats, Surface, TrialCounts

_BINS = 4
"""The number of bins along each axis."""


@dataclass(frozen=True, slots=True)
class ResidualBin:
    """Observed and expected trainings with the ending in one cell of the plane.

    Attributes:
        x_low, x_high, y_low, y_high: The ends of the cell.
        n_trials, n: Trials and trainings in the cell.
        k: Trainings with the ending.
        expected: The number of them that the model expects.
        z: (k - expected) over its standard deviation; `None` for one trial. The standard deviation is the larger of
            two: that of independent trainings, and that from the spread between trials, which alone would be far too
            small if few such trainings are expected.
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


def pearson_residuals(trials: TrialCounts, probability: Floats) -> Floats:
    """(T,) (k - n p) / sqrt(n p (1 - p)) of each trial."""
    expected = trials.n * probability
    return np.asarray((trials.k - expected) / np.sqrt(np.maximum(expected * (1 - probability), 1e-12)))


def binned_residuals(surface: Surface, trials: TrialCounts) -> tuple[ResidualBin, ...]:
    """Observed against expected in up to 4 x 4 cells of about equally many trials."""
    probability, _, _ = surface.at(trials.x, trials.y)
    found = []
    for x_low, x_high, in_column in _cells(trials.x):
        for y_low, y_high, in_row in _cells(trials.y[in_column]):
            inside = np.flatnonzero(in_column)[in_row]
            n, k, p = trials.n[inside], trials.k[inside], probability[inside]
            expected, off = n * p, k - n * p
            spread = float(np.sqrt(max(np.square(off).sum(), (expected * (1 - p)).sum())))
            z = float(off.sum() / spread) if len(inside) > 1 and spread > 0 else None
            ends = (x_low, x_high, y_low, y_high)
            found.append(ResidualBin(*ends, len(inside), int(n.sum()), int(k.sum()), float(expected.sum()), z))
    return tuple(found)


def _cells(values: Floats) -> Sequence[tuple[float, float, NDArray[np.bool_]]]:
    """Up to 4 ranges of about equally many values; the last holds its upper end."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)))
    if len(edges) == 1:
        return [(float(edges[0]), float(edges[0]), np.ones(len(values), bool))]
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    ranges = ((edges[at], edges[at + 1], place == at) for at in range(len(edges) - 1))
    return [(float(low), float(high), inside) for low, high, inside in ranges if inside.any()]
