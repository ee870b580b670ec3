"""Do two measurements of one number agree? Two-sample tests, and Holm's correction over the tests of a run.

A share of independent trainings is compared by Fisher's exact test. A rate over trials has an interval of Wilson's with
an effective number of trainings, which is recovered from its width; two such rates are compared by the score test. An
estimate is compared by the difference over its standard error, which is read from the sides of the two intervals that
face each other, as a side over z: an interval may reach farther to one side. Student's intervals are a little wider
than that, which makes the test a little conservative.

Source: Zou & Donner 2008, Stat. Med. 27 (variance from the facing sides of intervals).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnsweep.reproduction.claims.claim import Claim

FAMILY_ERROR = 0.05
"""Probability that a run rejects at least one true claim."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A number and its interval.

    Attributes:
        value, low, high: The number and its interval, of the claim's level.
        n: Number of trainings, or of what else was sampled, if it is known.
        k: How many have the property, for a share of independent trainings.
    """

    value: float
    low: float
    high: float
    n: int | None = None
    k: int | None = None


def p_value(claim: Claim, again: Measured) -> float:
    """The probability of two measurements that differ as much or more, if they measure one number."""
    from scipy import stats

    if claim.kind == "share":
        assert claim.k is not None
        assert claim.n is not None
        assert again.k is not None
        assert again.n is not None
        table = np.array([[claim.k, claim.n - claim.k], [again.k, again.n - again.k]])
        return float(stats.fisher_exact(table)[1])
    z = float(stats.norm.ppf(0.5 + claim.level / 2))
    if claim.kind == "rate":
        n, m = effective_n(claim.value, claim.low, claim.high, z), effective_n(again.value, again.low, again.high, z)
        pooled = (n * claim.value + m * again.value) / (n + m)
        error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        difference = claim.value - again.value
    else:
        of = math.log if claim.scale == "log" else float
        stated = Measured(value=claim.value, low=claim.low, high=claim.high)
        lower, upper = sorted((stated, again), key=lambda each: each.value)
        error = math.hypot(of(upper.value) - of(upper.low), of(lower.high) - of(lower.value)) / z
        difference = of(upper.value) - of(lower.value)
    if error == 0.0:
        return float(difference == 0.0)
    return float(2 * stats.norm.sf(abs(difference) / error))


def holm(p_values: Sequence[float], family_error: float = FAMILY_ERROR) -> list[bool]:
    """Which of these are rejected. The chance of rejecting any true one is at most `family_error`.

    Source: Holm 1979, Scand. J. Statist. 6. It holds whatever the dependence between the tests.
    """
    rejected = [False] * len(p_values)
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[at] > family_error / (len(p_values) - rank):
            break
        rejected[at] = True
    return rejected


def effective_n(share: float, low: float, high: float, z: float = 1.959964) -> float:
    """The number of independent trainings whose Wilson interval is as wide as this one."""
    least, most = 1e-3, 1e9
    for _ in range(200):
        middle = math.sqrt(least * most)
        half = z * math.sqrt(share * (1 - share) / middle + z**2 / (4 * middle**2)) / (1 + z**2 / middle)
        least, most = (middle, most) if 2 * half > high - low else (least, middle)
    return math.sqrt(least * most)
