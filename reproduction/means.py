"""Means over seeds with 95% intervals. scipy is imported where it is used: it is slow to load."""

import math
from collections.abc import Sequence

import numpy as np

from attnsweep.orchestrator.analysis.intervals import binomial_rate
from attnsweep.reproduction.comparison import ComparedValue

Bounds = tuple[float, float]


def mean_interval(values: Sequence[float], others: Sequence[float] | None = None) -> tuple[float, float, float]:
    """The mean of a sample, or how far it lies above another's, and its 95% interval: Student's, or Welch's.

    Where all values are equal, both bounds are that value; of one value alone, both are infinite.
    """
    from scipy import special

    samples = [np.asarray(each, dtype=np.float64) for each in (values, others) if each is not None]
    mean = float(samples[0].mean()) - (float(samples[1].mean()) if others is not None else 0.0)
    if any(each.size < 2 for each in samples):
        return mean, -math.inf, math.inf
    variances = np.array([each.var(ddof=1) / each.size for each in samples])
    total = float(variances.sum())
    if total == 0.0:
        return mean, mean, mean
    freedom = total**2 / sum(variance**2 / (each.size - 1) for variance, each in zip(variances, samples, strict=True))
    half = float(special.stdtrit(freedom, 0.975)) * math.sqrt(total)
    return mean, mean - half, mean + half


def mean_row(
    name: str,
    values: Sequence[float],
    *,
    published: str | None = None,
    agrees_within: Bounds | None = None,
    possible: Bounds = (-math.inf, math.inf),
) -> ComparedValue:
    """The mean over seeds of a configuration.

    Args:
        name: Of the row.
        values: One per seed.
        published: As the source has it.
        agrees_within: The published holds if the whole interval lies within; `None` where it says no such thing.
        possible: Values that there are; the interval is cut there.
    """
    mean, low, high = mean_interval(values)
    if math.isfinite(low):
        low, high = max(low, possible[0]), min(high, possible[1])
    return _row(name, mean, low, high, published, agrees_within)


def mean_difference_row(
    name: str, values: Sequence[float], others: Sequence[float], *, published: str
) -> ComparedValue:
    """How far the mean of a sample lies above another's; the published claim, that it does, holds if the interval is
    above 0."""
    mean, low, high = mean_interval(values, others)
    return _row(name, mean, low, high, published, (math.nextafter(0.0, 1.0), math.inf))


def share_row(
    name: str, n_with: int, n_seeds: int, *, published: str | None = None, agrees_within: Bounds | None = None
) -> ComparedValue:
    """The share of a configuration's seeds of which something holds, Wilson's interval; arguments as `mean_row`."""
    rate = binomial_rate(n_with, n_seeds)
    assert rate.share is not None
    assert rate.low is not None
    assert rate.high is not None
    return _row(name, rate.share, rate.low, rate.high, published, agrees_within)


def _row(
    name: str, ours: float, low: float, high: float, published: str | None, agrees_within: Bounds | None
) -> ComparedValue:
    is_estimated = math.isfinite(low)
    agrees = None if agrees_within is None else is_estimated and agrees_within[0] <= low and high <= agrees_within[1]
    return ComparedValue(
        name=name,
        published=published,
        ours=ours,
        low=low if is_estimated else None,
        high=high if is_estimated else None,
        agrees=agrees,
    )
