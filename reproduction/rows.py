"""Rows of estimates: means, shares and medians over seeds, each with its 95% interval.

A published claim agrees if the whole interval supports it. scipy is imported where it is used: it is slow to load.

**Means of values with known ends**, such as accuracies: a bootstrap that also covers what no seed shows.
The seeds of a configuration often end near one half or near 1. If all seeds seen end near 1, a bootstrap of theirs, or
Student's interval, has hardly any width, although one seed of fifty may end near one half. So the sample gets one more
value for each bound: the lowest possible value for the lower bound, the highest for the upper one. Both bounds are
quantiles of means with random weights, as in Rubin's bootstrap. For values that are only 0 or 1 this is Clopper and
Pearson's exact interval.

In simulation (`tests/reproduction/test_bounded.py`: accuracies on 100 strings, a share of 0 to 1 of the seeds near 1
and the others near one half) the interval covers the mean in 97 to 100% of cases for 20 and for 100 seeds; Student's
does in 25 to 96%.

Source: Rubin 1981, Annals of Statistics 9 (the weights); Clopper & Pearson 1934. Axes: C case, D draw, N seed.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnsweep.orchestrator.analysis.rates.intervals import Rate, binomial_rate
from attnsweep.reproduction.comparison import ComparedValue

Bounds = tuple[float, float]


class Claim(TypedDict, total=False):
    """What a row is held against.

    Attributes:
        published: The value or claim of the source, in its words.
        agrees_within: The claim agrees if the whole interval lies inside; left out if there is no claim to check.
    """

    published: str | None
    agrees_within: Bounds | None


ABOVE_ZERO: Bounds = (math.nextafter(0.0, 1.0), math.inf)
_SEED = 0
"""Seed of the bootstrap."""


def value_row(
    name: str, ours: float | str, published: float | str | None = None, *, agrees: bool | None = None
) -> ComparedValue:
    """A value without an interval, beside the published one if there is one."""
    return ComparedValue(name=name, published=published, ours=ours, agrees=agrees)


def rate_row(name: str, rate: Rate) -> ComparedValue:
    """A rate over trials with its interval."""
    return ComparedValue(
        name=name, published=None, ours="-" if rate.share is None else rate.share, low=rate.low, high=rate.high
    )


def rate_text(rate: Rate, decimals: int = 3) -> str:
    """A rate with its interval as the cell of a table."""
    if rate.interval is None:
        return "-"
    share, low, high = (f"{each:.{decimals}f}" for each in rate.interval)
    return f"{share} [{low}, {high}]"


def bins(values: NDArray[np.float64], per_decade: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The logarithmic bins that hold some of the values: a bin's ends, and which values are in it."""
    place = np.floor(per_decade * np.log10(values))
    for at in np.unique(place):
        yield "..".join(f"{10 ** (each / per_decade):.1g}" for each in (at, at + 1)), place == at


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
    name: str, values: Sequence[float], *, possible: Bounds = (-math.inf, math.inf), **claim: Unpack[Claim]
) -> ComparedValue:
    """The mean over the seeds of one configuration; its interval is cut at the ends of the possible values."""
    mean, low, high = mean_interval(values)
    if math.isfinite(low):
        low, high = max(low, possible[0]), min(high, possible[1])
    return estimate_row(name, mean, low, high, **claim)


def mean_difference_row(
    name: str, values: Sequence[float], others: Sequence[float], *, published: str | None = None
) -> ComparedValue:
    """The mean of a sample minus another's. The published claim, if there is one, is that the first is larger."""
    within = None if published is None else ABOVE_ZERO
    return estimate_row(name, *mean_interval(values, others), published=published, agrees_within=within)


def share_row(name: str, n_with: int, n_seeds: int, **claim: Unpack[Claim]) -> ComparedValue:
    """The share of a configuration's seeds that have some property, with Wilson's interval."""
    interval = binomial_rate(n_with, n_seeds).interval
    assert interval is not None
    return estimate_row(name, *interval, **claim)


def median_row(
    name: str, values: Sequence[float], *, published: str | None, agrees_above: float | None = None
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
    return estimate_row(
        name,
        float(np.median(values)),
        float(interval.low),
        float(interval.high),
        published=published,
        agrees_within=above,
    )


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
    return estimate_row(name, ours, float(low), float(high), published=published, agrees_within=ABOVE_ZERO)


def ratio_row(name: str, values: Sequence[float], others: Sequence[float], **claim: Unpack[Claim]) -> ComparedValue:
    """The geometric mean of a sample over another's, with Welch's interval of the logarithms.

    Unlike in the other rows, a published claim is undecided if the interval reaches into `agrees_within` and out of it.
    """
    logarithms = ([math.log(each) for each in sample] for sample in (values, others))
    ours, low, high = (math.exp(each) for each in mean_interval(*logarithms))
    row, within = estimate_row(name, ours, low, high, **claim), claim.get("agrees_within")
    if within is None or row.agrees or high < within[0] or low > within[1]:
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


def estimate_row(name: str, ours: float, low: float, high: float, **claim: Unpack[Claim]) -> ComparedValue:
    """An estimate with its 95% interval; infinite bounds mean that it has none."""
    within = claim.get("agrees_within")
    is_estimated = math.isfinite(low)
    agrees = None if within is None else is_estimated and within[0] <= low and high <= within[1]
    return ComparedValue(
        name=name,
        published=claim.get("published"),
        ours=ours,
        low=low if is_estimated else None,
        high=high if is_estimated else None,
        agrees=agrees,
    )


_N_DRAWS = 4_000
_TAILS = (0.025, 0.975)

Floats = NDArray[np.float64]


def bounded_mean_intervals(values: ArrayLike, ends: Bounds) -> tuple[Floats, Floats, Floats]:
    """The mean of each case with its 95% interval.

    Args:
        values: (C, N) of the seeds of each case.
        ends: The lowest and the highest possible value.

    Returns:
        (C,) means, lower and upper bounds.
    """
    values_CN = np.asarray(values, np.float64)
    bounds = (
        np.clip(np.quantile(_drawn_means(values_CN, end), tail, axis=1), *ends)
        for end, tail in zip(ends, _TAILS, strict=True)
    )
    return values_CN.mean(axis=1), *bounds


def bounded_mean_row(name: str, values: Sequence[float], ends: Bounds, **claim: Unpack[Claim]) -> ComparedValue:
    """The mean over the seeds of one configuration, of values between two ends."""
    mean, low, high = (float(each[0]) for each in bounded_mean_intervals([values], ends))
    return estimate_row(name, mean, low, high, **claim)


def bounded_difference_row(
    name: str, values: Sequence[float], others: Sequence[float], ends: Bounds, **claim: Unpack[Claim]
) -> ComparedValue:
    """The mean of a sample minus another's, of values between two ends."""
    one, other = np.array([values]), np.array([others])
    low, high = (
        float(np.quantile(_drawn_means(one, end)[0] - _drawn_means(other, opposite, 1)[0], tail))
        for end, opposite, tail in zip(ends, reversed(ends), _TAILS, strict=True)
    )
    return estimate_row(name, float(np.mean(values) - np.mean(others)), low, high, **claim)


def _drawn_means(values_CN: Floats, end: float, seed: int = 0) -> Floats:
    """(C, D) means of the values and the end, with random weights."""
    with_end = np.concatenate([values_CN, np.full((len(values_CN), 1), end)], axis=1)
    found: Floats = with_end @ _weights(with_end.shape[1], seed).T
    return found


@lru_cache(maxsize=8)
def _weights(n: int, seed: int) -> Floats:
    """(D, n) weights that sum to 1, uniform over all such."""
    drawn_DN: Floats = np.random.default_rng(seed).standard_exponential((_N_DRAWS, n))
    drawn_DN /= drawn_DN.sum(axis=1, keepdims=True)
    return drawn_DN
