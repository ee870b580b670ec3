"""Rows of estimates: means, shares and medians over seeds, each with its 95% interval.

A published claim agrees if the whole interval supports it. scipy is imported where it is used: it is slow to load.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnsweep.orchestrator.analysis.rates.intervals import binomial_rate
from attnsweep.reproduction.comparison import ComparedValue

Bounds = tuple[float, float]

ABOVE_ZERO: Bounds = (math.nextafter(0.0, 1.0), math.inf)
_SEED = 0
"""Seed of the bootstrap."""


def mean_interval(values: Sequence[float], others: Sequence[float] | None = None) -> tuple[float, float, float]:
    """The mean of a sample with its 95% interval (Student's), or its distance above another's mean (Welch's).

    If all values are equal, both bounds are that value. For a single value, both bounds are infinite.
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
    """The mean over the seeds of one configuration.

    Args:
        name: The row's name.
        values: One per seed.
        published: The value or claim of the source, in its words.
        agrees_within: The claim agrees if the whole interval lies inside; `None` if there is no claim to check.
        possible: The range of possible values; the interval is cut there.
    """
    mean, low, high = mean_interval(values)
    if math.isfinite(low):
        low, high = max(low, possible[0]), min(high, possible[1])
    return estimate_row(name, mean, low, high, published, agrees_within)


def mean_difference_row(
    name: str, values: Sequence[float], others: Sequence[float], *, published: str | None = None
) -> ComparedValue:
    """The mean of a sample minus another's. The published claim, if there is one, is that the first is larger."""
    return estimate_row(name, *mean_interval(values, others), published, None if published is None else ABOVE_ZERO)


def share_row(
    name: str, n_with: int, n_seeds: int, *, published: str | None = None, agrees_within: Bounds | None = None
) -> ComparedValue:
    """The share of a configuration's seeds that have some property, with Wilson's interval. Arguments: `mean_row`."""
    rate = binomial_rate(n_with, n_seeds)
    assert rate.share is not None
    assert rate.low is not None
    assert rate.high is not None
    return estimate_row(name, rate.share, rate.low, rate.high, published, agrees_within)


def median_row(
    name: str, values: Sequence[float], *, published: float | str | None, agrees_above: float | None = None
) -> ComparedValue:
    """The median of a sample, with the distribution-free interval of its order statistics.

    Args:
        name: The row's name.
        values: One per training.
        published: The value or claim of the source.
        agrees_above: The claim agrees if the whole interval lies above; `None` if there is no claim to check.

    Source: Thompson 1936, Ann. Math. Stat. 7 (`scipy.stats.quantile_test`).
    """
    from scipy import stats

    # scipy's stub says that this is a float.
    interval: Any = stats.quantile_test(values, p=0.5, alternative="two-sided").confidence_interval(0.95)
    above = None if agrees_above is None else (math.nextafter(agrees_above, math.inf), math.inf)
    return estimate_row(name, float(np.median(values)), float(interval.low), float(interval.high), published, above)


def median_difference_row(
    name: str, values: Sequence[float], others: Sequence[float], *, published: str
) -> ComparedValue:
    """The median of a sample minus another's, with a bootstrap interval (BCa, 10,000 resamples).

    The published claim is that the first is larger.
    """
    from scipy import stats

    def difference(one: np.ndarray, other: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(np.median(one, axis=axis) - np.median(other, axis=axis))

    found = stats.bootstrap((values, others), difference, n_resamples=9_999, rng=np.random.default_rng(_SEED))
    low, high = found.confidence_interval
    ours = float(np.median(values) - np.median(others))
    return estimate_row(name, ours, float(low), float(high), published, ABOVE_ZERO)


def ratio_row(
    name: str,
    values: Sequence[float],
    others: Sequence[float],
    *,
    published: str | None = None,
    agrees_within: Bounds | None = None,
) -> ComparedValue:
    """The geometric mean of a sample over another's, with Welch's interval of the logarithms.

    Unlike in the other rows, a published claim is undecided if the interval reaches into `agrees_within` and out of it.

    Args:
        name: The row's name.
        values, others: Positive numbers.
        published: The value or claim of the source.
        agrees_within: The claim agrees if the whole interval lies inside, and differs if none of it does.
    """
    ours, low, high = (
        math.exp(each)
        for each in mean_interval([math.log(each) for each in values], [math.log(each) for each in others])
    )
    row = estimate_row(name, ours, low, high, published, agrees_within)
    if agrees_within is None or row.agrees or high < agrees_within[0] or low > agrees_within[1]:
        return row
    return dataclasses.replace(row, agrees=None)


def border_row(
    name: str, border: float, low: float, high: float, *, published: str | None = None, agrees: bool | None = None
) -> ComparedValue:
    """A border as `half_point` finds it on a logarithmic axis; where an end of the interval is open, the other end."""
    if math.isfinite(low) and math.isfinite(high):
        values = {"ours": math.exp(border), "low": math.exp(low), "high": math.exp(high)}
        return ComparedValue(name=name, published=published, agrees=agrees, **values)
    bounds = [f"{word} {math.exp(end):.2g}" for word, end in (("above", low), ("below", high)) if math.isfinite(end)]
    return ComparedValue(name=name, published=published, ours=bounds[0] if bounds else "not found")


def estimate_row(
    name: str, ours: float, low: float, high: float, published: float | str | None, agrees_within: Bounds | None
) -> ComparedValue:
    """An estimate with its 95% interval; infinite bounds mean that it has none. Arguments: `mean_row`."""
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
