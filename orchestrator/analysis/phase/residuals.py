"""Residuals of a surface: observed and expected shares in cells, and the test that decides whether a border is drawn.

The expected share of a trial is predicted from the trials at other places of the plane (each place is held out once).
The plane is divided into cells of about equally many trials: 4 x 4 cells up to 300 trials, and 1.2 T^(1/4) along each
axis beyond. The surface fails if in any cell the observed and expected shares differ by more than 0.05 beyond chance.
Chance is computed by Student's t from the spread between the cell's trials, which counts as at least that of
independent trainings. A false alarm in any cell has a probability of 0.01 (Bonferroni).

The places of the trials are taken as given; how trainings end is random.

Source: Gelman et al. 2000 (binned residuals). Axes: T trial.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.phase.plane import TrialCounts
from attnsweep.orchestrator.analysis.phase.splines import Floats

_FEWEST_CELLS = 4
"""The least number of cells along each axis."""
_CELLS = 1.2
_OFF = 0.05
"""A difference between shares that matters."""
_FALSE_ALARM = 0.01


@dataclass(frozen=True, slots=True)
class ResidualBin:
    """Observed and expected numbers of trainings with an ending, in one cell of the plane of two parameters.

    Attributes:
        x_low, x_high, y_low, y_high: The ends of the cell.
        n_trials, n: The numbers of trials and trainings in the cell.
        k: The number of trainings with the ending.
        expected: The number of trainings with the ending that the trials at other places predict.
        z: (k - expected) over its standard deviation; `None` for one trial. The standard deviation is the larger of
            two: that of independent trainings, and that from the spread between trials, which alone would be far too
            small if few trainings with the ending are expected.
        off: By how much the observed and expected shares differ at least, beyond chance in any cell.
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
        """Whether the fitted surface disagrees with the observed share in this cell."""
        return self.off > _OFF


def pearson_residuals(trials: TrialCounts, probability: Floats) -> Floats:
    """Returns the Pearson residual of each of T trials, (T,): (k - n p) / sqrt(n p (1 - p))."""
    expected = trials.n * probability
    return np.asarray((trials.k - expected) / np.sqrt(np.maximum(expected * (1 - probability), 1e-12)))


def binned_residuals(trials: TrialCounts, expected: Floats, weight: Floats) -> tuple[ResidualBin, ...]:
    """Compares observed with expected shares in cells of the plane that hold about equally many trials.

    Args:
        expected: (T,) the expected share of each trial.
        weight: (T,) the weight of each trial, in trainings.
    """
    n_bins = max(_FEWEST_CELLS, int(_CELLS * len(trials.x) ** 0.25))
    cells = []
    for x_low, x_high, in_column in _cells(trials.x, n_bins):
        for y_low, y_high, in_row in _cells(trials.y[in_column], n_bins):
            cells.append(((x_low, x_high, y_low, y_high), np.flatnonzero(in_column)[in_row]))
    false_alarm = _FALSE_ALARM / len(cells)
    return tuple(_cell(ends, trials, expected, weight, inside, false_alarm) for ends, inside in cells)


def _cell(
    ends: tuple[float, float, float, float],
    trials: TrialCounts,
    expected: Floats,
    weight: Floats,
    inside: NDArray[np.int64],
    false_alarm: float,
) -> ResidualBin:
    from scipy import special

    n, k, share, weight = trials.n[inside], trials.k[inside], expected[inside], weight[inside]
    residual = weight * (k / n - share)
    independent = (np.square(weight) / n * share * (1 - share)).sum()
    between = len(inside) * residual.var(ddof=1) if len(inside) > 1 else 0.0
    spread = float(np.sqrt(max(between, independent)))
    is_judged = len(inside) > 1 and spread > 0
    most = float(special.stdtrit(len(inside) - 1, 1 - false_alarm / 2)) if is_judged else 0.0
    off = (abs(residual.sum()) - most * spread) / weight.sum() if is_judged else 0.0
    return ResidualBin(
        *ends,
        n_trials=len(inside),
        n=int(n.sum()),
        k=int(k.sum()),
        expected=float((n * share).sum()),
        z=float(residual.sum() / spread) if is_judged else None,
        off=max(float(off), 0.0),
    )


def _cells(values: Floats, n_bins: int) -> Sequence[tuple[float, float, NDArray[np.bool_]]]:
    """Divides values into up to `n_bins` ranges that hold about equally many; returns (low, high, mask of the values)
    of each range.

    The last range includes its upper end.
    """
    edges = np.unique(np.quantile(values, np.linspace(0, 1, n_bins + 1)))
    if len(edges) == 1:
        return [(float(edges[0]), float(edges[0]), np.ones(len(values), bool))]
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    ranges = ((edges[at], edges[at + 1], place == at) for at in range(len(edges) - 1))
    return [(float(low), float(high), inside) for low, high, inside in ranges if inside.any()]
