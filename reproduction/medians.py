"""Medians with honest intervals. scipy is imported where it is used: it is slow to load."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnsweep.reproduction.comparison import ComparedValue

_SEED = 0


def median_row(
    name: str, values: Sequence[float], *, published: float | str | None, agrees_above: float | None = None
) -> ComparedValue:
    """The median of a sample, with the 95% interval that order statistics give, whatever the distribution.

    Args:
        name: Of the row.
        values: One per training.
        published: As the source has it.
        agrees_above: The published holds if the whole interval lies above; `None` where it says no such thing.

    Source: Thompson 1936, Ann. Math. Stat. 7 (`scipy.stats.quantile_test`).
    """
    from scipy import stats

    # Its stub says float.
    interval: Any = stats.quantile_test(values, p=0.5, alternative="two-sided").confidence_interval(0.95)
    return ComparedValue(
        name=name,
        published=published,
        ours=float(np.median(values)),
        low=float(interval.low),
        high=float(interval.high),
        agrees=None if agrees_above is None else bool(interval.low > agrees_above),
    )


def median_difference_row(
    name: str, values: Sequence[float], others: Sequence[float], *, published: str
) -> ComparedValue:
    """How far the median of a sample lies above another's, with a bootstrap interval (BCa, 10,000 resamples).

    The published claim is that it does: it holds if the interval lies above 0.
    """
    from scipy import stats

    def difference(one: np.ndarray, other: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(np.median(one, axis=axis) - np.median(other, axis=axis))

    found = stats.bootstrap((values, others), difference, n_resamples=9_999, rng=np.random.default_rng(_SEED))
    low, high = found.confidence_interval
    return ComparedValue(
        name=name,
        published=published,
        ours=float(np.median(values) - np.median(others)),
        low=float(low),
        high=float(high),
        agrees=bool(low > 0),
    )
