"""Shares of runaways against sigma, and their slopes: estimates that know which starts the law expects to run away.

The same seeds are trained at every sigma, and few run away at the smallest, so a slope through counts follows the luck
of those seeds: two draws of 12,288 gave 0.58 and 0.49. What a training does is nearly settled by its start, so the
shares are measured as the law's share plus the mean of (measured - expected): a control variate, without bias, whose
error is that of the seeds on which the law errs. Axes: L training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attnsweep.reproduction.comparison import ComparedValue
from attnsweep.reproduction.studies.metric_law import RunawayLaw

_LARGEST = 1e-2
"""The law is of leading order in sigma: beyond this it is shown and not judged."""
_PRIOR_ERRORS = 2.0
"""Added to the number of seeds on which the law errs, as Agresti and Coull do: none seen does not mean that none is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What L trainings did, and what the law expected of their starts.

    Attributes:
        sigma: Their `init_sigma`.
        is_away: (L,) bool, whether they ran away.
        expected: (L,) bool, whether the law expects it.
    """

    sigma: float
    is_away: NDArray[np.bool_]
    expected: NDArray[np.bool_]


def corrected_share(share: float, of_sigma: Sequence[Forecast]) -> tuple[float, float]:
    """The share of runaways, and its standard error, from all draws at one sigma and the law's own share."""
    n = sum(each.is_away.size for each in of_sigma)
    more = sum(int((each.is_away & ~each.expected).sum()) for each in of_sigma)
    fewer = sum(int((each.expected & ~each.is_away).sum()) for each in of_sigma)
    return share + (more - fewer) / n, math.sqrt(more + fewer + _PRIOR_ERRORS) / n


def law_rows(law: RunawayLaw, forecasts: Sequence[Forecast]) -> list[ComparedValue]:
    """Shares given the starts, the seeds on which the law errs, and the slopes between neighbouring sigmas."""
    sigmas = sorted({each.sigma for each in forecasts}, reverse=True)
    by_sigma = {sigma: [each for each in forecasts if each.sigma == sigma] for sigma in sigmas}
    derived = {sigma: law.share(sigma) for sigma in sigmas}
    found = {sigma: corrected_share(derived[sigma], by_sigma[sigma]) for sigma in sigmas}
    rows = []
    for sigma, (share, error) in found.items():
        n_wrong = sum(int((each.is_away != each.expected).sum()) for each in by_sigma[sigma])
        rows.append(_row(f"merged, sigma {sigma:g}: runaway, given the starts", derived[sigma], share, error, sigma))
        rows.append(ComparedValue(name="  seeds that do not as the law expects", published=None, ours=n_wrong))
    for large, small in pairwise(sigmas):
        ratio = math.log(large / small)
        (high, high_error), (low, low_error) = found[large], found[small]
        if min(high, low) <= 0:
            continue
        error = math.hypot(high_error / high, low_error / low) / ratio
        name = f"merged: slope of log share against log sigma, {small:g} to {large:g}"
        slope = math.log(derived[large] / derived[small]) / ratio
        rows.append(_row(name, slope, math.log(high / low) / ratio, error, large))
    limit = f"{law.exponent:.4f} (derived)"
    return [*rows, ComparedValue(name="  its limit for small sigma", published=limit, ours="-")]


def fitted_slope(
    sigmas: NDArray[np.float64], counts: NDArray[np.float64], n: NDArray[np.float64]
) -> tuple[float, float]:
    """The slope of log share against log sigma, and half its 95% interval; shares weigh by their own error.

    For shares that no law expects. Local slopes differ from it where the share bends.
    """
    share = counts / n
    weight = n * share / (1 - share)
    x, y = np.log(sigmas), np.log(share)
    centred = x - np.average(x, weights=weight)
    information = float((weight * centred**2).sum())
    return float((weight * centred * y).sum()) / information, 1.96 / math.sqrt(information)


def _row(name: str, derived: float, ours: float, error: float, largest: float) -> ComparedValue:
    low, high = ours - 1.96 * error, ours + 1.96 * error
    return ComparedValue(
        name=name,
        published=f"{derived:.4g} (derived)",
        ours=ours,
        low=low,
        high=high,
        agrees=low <= derived <= high if largest <= _LARGEST else None,
    )
