"""Rates (shares of trainings) with 95% intervals that allow for dependence between the trainings of a trial.

The trainings of one trial share their parameters, so they tend to end alike: 16 replicates of one configuration say
less about a bin of configurations than 16 configurations would. A rate that pools several trials therefore has
Wilson's interval for an *effective* number of trainings, `n / deff`:

- The design effect `deff` is the variance of the pooled rate between trials over its binomial variance. As it is
  estimated from few trials, the effective number is multiplied by `(z / t)^2`, with `n_trials - 1` degrees of freedom,
  and clipped to between the number of trials (as if replicates always agree) and the number of trainings.
- If all trainings end alike, `deff` is undetermined, and the effective number is the number of trials.
- If trials have several trainings, but fewer than 8 trials, and at most half of all, differ from the unanimous rest,
  `deff` rests on those few, and is too small if by chance the most extreme were not drawn. The effective number is then
  the number of trials, and the interval is the exact binomial one (Clopper & Pearson), which keeps its coverage near a
  share of 0.
- A single trial has the plain Wilson interval, for this one configuration.

Under `Sequential` replication a trial has more trainings the nearer its rate is to one half (or to the threshold), so
the rate is the mean of the trials' shares, with the same intervals for the effective number that follows from their
spread. A single trial has the interval that `Sequential` itself used, which is valid whenever the trainings stop; its
share is biased by up to 0.015 if a width of at most 0.25 stops it, by up to 0.05 if a threshold of one half does.

In simulation (5 trials of 16 trainings, intra-trial correlation 0.6, rate 0.5) the pooled binomial interval covers the
truth in 46% of cases and this module's interval in 95%. For 3 to 256 trials of 2 to 16 trainings, rates from 0.003 to
0.5 and correlations from 0.1 to 0.9 it covers in at least 93%. The tests repeat some of these simulations.

Source: Kish 1965 (design effect); Korn & Graubard 1998, Survey Methodology 24 (effective sample size, its degrees of
freedom); Franco et al. 2019, J. Survey Stat. Methodol. 7 (Wilson's interval for it); Clopper & Pearson 1934, Biometrika
26.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnsweep.search_spaces.confidence_sequence import sequential_interval
from attnsweep.search_spaces.replication import Sequential
from attnsweep.search_spaces.sweep import Sweep

# scipy is imported inside functions, because its import takes half a second.

_Z = NormalDist().inv_cdf(0.975)
_NARROW = 0.02
"""A narrower interval is shown with a third decimal."""
_MIN_UNLIKE = 8
"""Fewer trials that differ from a unanimous rest do not tell the spread."""


Counts: TypeAlias = Sequence[tuple[int, int]] | NDArray[np.int64]
"""`(n, k)` of each trial: the trainings that count, and those with the property."""


RATE_COLUMNS: Mapping[str, type] = MappingProxyType({"n": int, "k": int, "share": float, "low": float, "high": float})


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of trainings with the 95% interval of the true rate.

    Attributes:
        n, k: Trainings counted, and those with the property.
        share: `k / n` or the mean of the trials' shares; `None` if nothing was counted.
    """

    n: int
    k: int
    share: float | None
    low: float | None
    high: float | None

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """The share and its bounds; `None` if nothing was counted."""
        if self.share is None or self.low is None or self.high is None:
            return None
        return self.share, self.low, self.high

    def columns(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        return cls(*(row[name] for name in RATE_COLUMNS))


NOTHING = Rate(0, 0, None, None, None)


def binomial_rate(k: int, n: int) -> Rate:
    """Of independent trainings, such as the replicates of one trial, with Wilson's interval."""
    return Rate(n, k, k / n, *wilson(k / n, n)) if n else NOTHING


def pooled_rate(counts: Counts) -> Rate:
    """The share over all trainings of several trials."""
    trials = _counted(counts)
    n, k = (int(total) for total in trials.sum(axis=0))
    n_trials, share = len(trials), k / max(n, 1)
    if n_trials <= 1:
        return binomial_rate(k, n)
    residuals_T = trials[:, 1] - share * trials[:, 0]
    variance = n_trials / (n_trials - 1) * np.square(residuals_T).sum() / n**2
    return Rate(n, k, share, *rate_interval(share, _effective_n(share, variance, n_trials, n), trials))


def mean_rate(counts: Counts) -> Rate:
    """The mean of the trials' shares."""
    trials = _counted(counts)
    n, k = (int(total) for total in trials.sum(axis=0))
    n_trials = len(trials)
    if n_trials <= 1:
        return Rate(n, k, k / n, *sequential_interval(k, n)) if n_trials else NOTHING
    shares = trials[:, 1] / trials[:, 0]
    mean = float(shares.mean())
    variance = float(shares.var(ddof=1)) / n_trials
    return Rate(n, k, mean, *rate_interval(mean, _effective_n(mean, variance, n_trials, n), trials))


def _counted(counts: Counts) -> NDArray[np.float64]:
    """(T, 2), without trials in which no training counts."""
    trials = np.asarray(counts, dtype=np.float64).reshape(-1, 2)
    return trials[trials[:, 0] > 0]


Pooling: TypeAlias = Callable[[Counts], Rate]
"""`pooled_rate` or `mean_rate`."""


def pooling(*specs: Sweep) -> Pooling:
    return mean_rate if trials_count_once(*specs) else pooled_rate


def trials_count_once(*specs: Sweep) -> bool:
    """Whether trials must have equal weight in rates: where their numbers of trainings depend on how these end."""
    return any(isinstance(spec.replicates, Sequential) for spec in specs)


def weights_of_trainings(trial: NDArray[np.int64], *, once_per_trial: bool) -> NDArray[np.float64]:
    """1 for each training or, with `once_per_trial`, weights of the same sum in every trial."""
    if not once_per_trial:
        return np.ones(len(trial))
    trials, trial_R, n_of_trial = np.unique(trial, return_inverse=True, return_counts=True)
    return len(trial) / (len(trials) * n_of_trial[trial_R])


def rate_label(rate: Rate) -> str:
    """`0.25 [0.19, 0.32] of 160`, or `-` if nothing was counted."""
    if rate.interval is None:
        return "-"
    share, low, high = rate.interval
    return f"{share:.2f} [{low:.2f}, {high:.2f}] of {rate.n}"


def share_label(rate: Rate) -> str:
    """`0.25 [0.19, 0.32]`, with a third decimal if the interval is narrow, or `-` if nothing was counted."""
    if rate.interval is None:
        return "-"
    share, low, high = rate.interval
    digits = 2 if high - low >= _NARROW else 3
    return f"{share:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def few_trials_factor(n_trials: int) -> float:
    """(z / t)^2, below 1: it widens an interval whose variance is estimated from so many trials."""
    from scipy import special

    return float((_Z / special.stdtrit(n_trials - 1, 0.975)) ** 2)


def _effective_n(share: float, variance: float, n_trials: int, total: float) -> float:
    if share in (0, 1):
        return n_trials
    design_effect = max(variance / (share * (1 - share) / total), 1.0)
    return float(np.clip(total / design_effect * few_trials_factor(n_trials), n_trials, total))


def rate_interval(
    share: float, n_effective: float, trials_T2: NDArray[np.float64], n_once_per_trial: float | None = None
) -> tuple[float, float]:
    """The 95% interval of a share over several trials with these (n, k).

    Args:
        n_effective: Independent trainings that would say as much.
        n_once_per_trial: The same if a trial counted as one training; by default the number of trials.
    """
    n_of_trial, k_of_trial = trials_T2.T
    n_unlike = min((k_of_trial > 0).sum(), (k_of_trial < n_of_trial).sum())
    is_estimated = 0 < share < 1 and n_of_trial.max() > 1
    if is_estimated and n_unlike < _MIN_UNLIKE and 2 * n_unlike <= len(trials_T2):
        return _exact(share, len(trials_T2) if n_once_per_trial is None else n_once_per_trial)
    return wilson(share, n_effective)


def exact_interval(k: int, n: int) -> tuple[float, float]:
    """Clopper and Pearson's of a share `k / n`."""
    low, high = _exact(k / n, n) if 0 < k < n else (0.0, 1.0)
    bound_of_all = NormalDist().cdf(-_Z) ** (1 / n)  # where `_exact` is not defined, as a limit
    return (bound_of_all if k == n else low, 1 - bound_of_all if k == 0 else high)


def _exact(share: float, n: float) -> tuple[float, float]:
    from scipy import special

    k, tail = share * n, NormalDist().cdf(-_Z)
    return float(special.betaincinv(k, n - k + 1, tail)), float(special.betaincinv(k + 1, n - k, 1 - tail))


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a share; `n` need not be whole."""
    shift = _Z**2 / (2 * n)
    centre = (share + shift) / (1 + 2 * shift)
    half = math.sqrt(2 * shift * share * (1 - share) + shift**2) / (1 + 2 * shift)
    return max(centre - half, 0.0), min(centre + half, 1.0)
