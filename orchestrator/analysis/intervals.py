"""Rates with honest 95% intervals.

The trainings of one trial share their parameters, so they tend to end alike: 16 replicates of one configuration tell
less about a bin of configurations than 16 configurations would. A rate that pools trials is therefore given Wilson's
interval at an effective number of trainings, `n / deff`, where the design effect `deff` is the variance of the pooled
rate between trials over its binomial variance; lowered by `(z / t)^2` with `n_trials - 1` degrees of freedom, since
`deff` itself is estimated from few trials; and kept between the number of trials (replicates that always agree) and
the number of trainings. Trials that agree unanimously leave `deff` undetermined and count once each.
A bin of one trial gets plain Wilson: its interval is that of this one configuration.

In simulation (5 trials x 16, intra-trial correlation 0.6, rate 0.5) the pooled binomial interval covers the truth in
46% of cases, this one in 95%; the tests repeat it.

Source: Kish 1965 (design effect); Korn & Graubard 1998, Survey Methodology 24 (effective sample size, its degrees of
freedom); Franco et al. 2019, J. Survey Stat. Methodol. 7 (Wilson's interval at it).
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

# scipy is imported where it is used: it takes half a second, which a sweep's start should not wait for.

_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Rate:
    """`k` of `n` trainings, with the 95% interval of the rate; no bounds where nothing was counted."""

    n: int
    k: int
    low: float | None
    high: float | None

    @property
    def share(self) -> float | None:
        """The point estimate."""
        return self.k / self.n if self.n else None

    def as_json(self) -> dict[str, int | float | None]:
        """Plain values."""
        return {"n": self.n, "k": self.k, "share": self.share, "low": self.low, "high": self.high}


@functools.lru_cache(maxsize=4096)
def binomial_rate(k: int, n: int) -> Rate:
    """The rate of `n` independent trainings, such as the replicates of one trial: Wilson's interval."""
    if n == 0:
        return Rate(0, 0, None, None)
    from scipy import stats

    interval = stats.binomtest(k, n).proportion_ci(confidence_level=0.95, method="wilson")
    return Rate(n, k, float(interval.low), float(interval.high))


def pooled_rate(counts: Sequence[tuple[int, int]]) -> Rate:
    """The rate over several trials, `(n, k)` each, with the interval that the module describes."""
    trials = np.array([(n, k) for n, k in counts if n], dtype=np.float64).reshape(-1, 2)
    n, k = (int(total) for total in trials.sum(axis=0))
    if len(trials) <= 1:
        return binomial_rate(k, n)
    low, high = wilson(k / n, _effective_n(trials[:, 0], trials[:, 1]))
    return Rate(n, k, low, high)


def rate_label(rate: Rate) -> str:
    """`0.25 [0.19, 0.32] of 160`, or `-` where nothing was counted."""
    if rate.share is None or rate.low is None or rate.high is None:
        return "-"
    return f"{rate.share:.2f} [{rate.low:.2f}, {rate.high:.2f}] of {rate.n}"


def spread_of_estimate(n_trials: int) -> float:
    """The factor (z / t)^2 of an effective number whose design effect is estimated from so many trials."""
    from scipy import special

    return float((_Z / special.stdtrit(n_trials - 1, 0.975)) ** 2)


def _effective_n(n: NDArray[np.float64], k: NDArray[np.float64]) -> float:
    n_trials, total, share = len(n), n.sum(), k.sum() / n.sum()
    binomial_variance = share * (1 - share) / total
    if binomial_variance == 0:
        return n_trials
    variance = n_trials / (n_trials - 1) * np.square(k - share * n).sum() / total**2
    design_effect = max(variance / binomial_variance, 1.0)
    return float(np.clip(total / design_effect * spread_of_estimate(n_trials), n_trials, total))


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's interval for a number of trainings that is not whole, which scipy's does not take."""
    shift = _Z**2 / (2 * n)
    centre = (share + shift) / (1 + 2 * shift)
    half = math.sqrt(2 * shift * share * (1 - share) + shift**2) / (1 + 2 * shift)
    return max(centre - half, 0.0), min(centre + half, 1.0)
