"""Rows of a comparison with published values: means, shares and medians over seeds, each with its 95% interval.

A published claim agrees if the whole interval supports it. scipy is imported where it is used: it is slow to load.

Means of values between known ends, such as accuracies, get a bootstrap that allows for outcomes that no seed shows. The
seeds of a configuration often end near one half or near 1. If all observed seeds end near 1, their bootstrap, or
Student's interval, has hardly any width, although one seed of fifty may end near one half. So the sample gets one more
value for each bound: the lowest possible value for the lower bound, the highest for the upper one. Both bounds are
quantiles of means with random weights, as in Rubin's bootstrap. For values that are only 0 or 1 this is Clopper and
Pearson's exact interval.

In simulation (`tests/reproduction/test_rows.py`: accuracies on 100 strings, a share of 0 to 1 of the seeds near 1
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
    """A published claim, in words, and the bounds between which our value must lie to agree with it.

    Attributes:
        published: The value or claim of the source, in its words.
        agrees_within: The claim agrees if the whole interval of our value lies within these bounds; left out if there
            is no claim.
    """

    published: str | None
    agrees_within: Bounds | None


ABOVE_ZERO: Bounds = (math.nextafter(0.0, 1.0), math.inf)
_SEED = 0
"""The seed of the bootstrap."""


def value_row(
    name: str, ours: float | str, published: float | str | None = None, *, agrees: bool | None = None
) -> ComparedValue:
    """Returns a row of a reproduction's table: a value that we computed, without an interval, beside the published
    value if there is one."""
    return ComparedValue(name=name, published=published, ours=ours, agrees=agrees)


def rate_text(rate: Rate, decimals: int = 3) -> str:
    """Formats a rate with its 95% interval as text, for the cell of a table."""
    if rate.interval is None:
        return "-"
    share, low, high = (f"{number:.{decimals}f}" for number in rate.interval)
    return f"{share} [{low}, {high}]"


def bins(values: NDArray[np.float64], per_decade: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Groups positive values into logarithmic bins."""
    place = np.floor(per_decade * np.log10(values))
    for left in np.unique(place):
        yield "..".join(f"{10 ** (end / per_decade):.1g}" for end in (left, left + 1)), place == left


def mean_interval(values: Sequence[float], others: Sequence[float] | None = None) -> tuple[float, float, float]:
    """A sample's mean with Student's 95% interval; of two samples, their difference with Welch's."""
    from scipy import special

    samples = [np.asarray(sample, dtype=np.float64) for sample in (values, others) if sample is not None]
    mean = float(samples[0].mean()) - (float(samples[1].mean()) if others is not None else 0.0)
    if any(sample.size < 2 for sample in samples):
        return mean, -math.inf, math.inf
    variances = np.array([sample.var(ddof=1) / sample.size for sample in samples])
    total = float(variances.sum())
    if total == 0.0:
        return mean, mean, mean
    freedom = total**2 / sum(
        variance**2 / (sample.size - 1) for variance, sample in zip(variances, samples, strict=True)
    )
    half = float(special.stdtrit(freedom, 0.975)) * math.sqrt(total)
    return mean, mean - half, mean + half


def mean_row(
    name: str, values: Sequence[float], *, possible: Bounds = (-math.inf, math.inf), **claim: Unpack[Claim]
) -> ComparedValue:
    """Returns a row of a reproduction's table: the mean of `values`, one per seed, with its interval."""
    mean, low, high = mean_interval(values)
    if math.isfinite(low):
        low, high = max(low, possible[0]), min(high, possible[1])
    return estimate_row(name, mean, low, high, **claim)


def mean_difference_row(
    name: str, values: Sequence[float], others: Sequence[float], *, published: str | None = None
) -> ComparedValue:
    """Returns a row with the difference of two samples' means and its interval: the mean of the first sample minus that
    of the second."""
    within = None if published is None else ABOVE_ZERO
    return estimate_row(name, *mean_interval(values, others), published=published, agrees_within=within)


def share_row(name: str, n_with: int, n_seeds: int, **claim: Unpack[Claim]) -> ComparedValue:
    """Returns a row with the rate of a configuration's seeds that have some property (such as solved), and Wilson's
    interval."""
    interval = binomial_rate(n_with, n_seeds).interval
    assert interval is not None
    return estimate_row(name, *interval, **claim)


def median_row(
    name: str, values: Sequence[float], *, published: str | None, agrees_above: float | None = None
) -> ComparedValue:
    """Returns a row with a sample's median, and an interval from order statistics that holds for any distribution.

    Args:
        name: The row's name.
        values: One value per training.
        published: The value or claim of the source.
        agrees_above: The claim agrees if the whole interval lies above this; `None` if there is no claim to check.

    Source: Thompson 1936, Ann. Math. Stat. 7 (`scipy.stats.quantile_test`).
    """
    from scipy import stats

    # The type is `Any`, because scipy's type stub wrongly declares the confidence interval, which is an object, as a
    # float.
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
    """Returns a row with the difference of two samples' medians, and a bootstrap interval (BCa, 10,000 resamples)."""
    from scipy import stats

    def difference(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(np.median(first, axis=axis) - np.median(second, axis=axis))

    result = stats.bootstrap((values, others), difference, n_resamples=9_999, rng=np.random.default_rng(_SEED))
    low, high = result.confidence_interval
    ours = float(np.median(values) - np.median(others))
    return estimate_row(name, ours, float(low), float(high), published=published, agrees_within=ABOVE_ZERO)


def ratio_row(name: str, values: Sequence[float], others: Sequence[float], **claim: Unpack[Claim]) -> ComparedValue:
    """Makes a row of a reproduction's table: the ratio of the geometric means of two samples, with Welch's interval,
    which is computed on the logarithms. Unlike in the other rows, a claim partly inside is undecided."""
    logarithms = ([math.log(value) for value in sample] for sample in (values, others))
    ours, low, high = (math.exp(logarithm) for logarithm in mean_interval(*logarithms))
    row, within = estimate_row(name, ours, low, high, **claim), claim.get("agrees_within")
    if within is None or row.agrees or high < within[0] or low > within[1]:
        return row
    return dataclasses.replace(row, agrees=None)


def estimate_row(name: str, ours: float, low: float, high: float, **claim: Unpack[Claim]) -> ComparedValue:
    """Returns one row of a comparison with a publication: our estimate and its 95% interval, which is left out if a
    bound is not finite."""
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
    """Returns the mean of each row of `values`, with a 95% interval, for values that lie between two known ends, such
    as accuracies.

    Args:
        values: Rows with one value for each seed, (n_cases, n_seeds).
        ends: The lowest and the highest possible value.

    Returns:
        (n_cases,) means, lower and upper bounds.
    """
    values_CN = np.asarray(values, np.float64)
    bounds = (
        np.clip(np.quantile(_drawn_means(values_CN, end), tail, axis=1), *ends)
        for end, tail in zip(ends, _TAILS, strict=True)
    )
    return values_CN.mean(axis=1), *bounds


def bounded_mean_row(name: str, values: Sequence[float], ends: Bounds, **claim: Unpack[Claim]) -> ComparedValue:
    """Returns a row of a comparison with a mean over seeds and its interval."""
    mean, low, high = (float(numbers[0]) for numbers in bounded_mean_intervals([values], ends))
    return estimate_row(name, mean, low, high, **claim)


def bounded_difference_row(
    name: str, values: Sequence[float], others: Sequence[float], ends: Bounds, **claim: Unpack[Claim]
) -> ComparedValue:
    """Returns a row with the difference of two samples' means and its interval, for values that lie between two known
    ends, such as accuracies."""
    sample, other_sample = np.array([values]), np.array([others])
    low, high = (
        float(np.quantile(_drawn_means(sample, end)[0] - _drawn_means(other_sample, opposite, 1)[0], tail))
        for end, opposite, tail in zip(ends, reversed(ends), _TAILS, strict=True)
    )
    return estimate_row(name, float(np.mean(values) - np.mean(others)), low, high, **claim)


def _drawn_means(values_CN: Floats, end: float, seed: int = 0) -> Floats:
    with_end = np.concatenate([values_CN, np.full((len(values_CN), 1), end)], axis=1)
    means: Floats = with_end @ _weights(with_end.shape[1], seed).T
    return means


@lru_cache(maxsize=8)
def _weights(n: int, seed: int) -> Floats:
    drawn_DN: Floats = np.random.default_rng(seed).standard_exponential((_N_DRAWS, n))
    drawn_DN /= drawn_DN.sum(axis=1, keepdims=True)
    return drawn_DN
