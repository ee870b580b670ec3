"""Evidence for statements on rates and medians: natural logarithms of e-values.

An e-value is a product over the trainings, averaged over rates for which the statement holds: the chance of what was
seen at such a rate, over that at a rate where it just does not hold. If the statement is false, this is on average at
most what it was before, with each training, so by Ville's inequality it ever exceeds 1 / 0.05 with a chance of at most
5%, whatever decides when to look or to stop.

- **One rate**, `above` and `below`: the rates are drawn from a Beta(1/2, 1/2), cut off at the number that the rate is
  compared with. The chances below the line are those at this number: a rate further off only lowers the average.
- **An order of two rates**, `ordered`: of pairs of trainings, one of each group. For each pair of rates with
  `lower < factor upper`, the chances below the line are those at the pair with `lower = factor upper` that is nearest
  by relative entropy. If the true rates are on the line and d off that pair, the factor of one group is on average
  1 - a d and that of the other 1 + a d, with the same a, because the pair is nearest: together at most 1.
- **A median** is below a step if more than half of the trainings have come before it: a statement on a rate.
- **An order of two medians**, `medians_ordered`: the product of the evidence that one group's median is below a step
  and that the other's is not, at the step that makes it least. At the true medians it is as above, so no correction is
  needed for the steps that are tried.

Axes: C candidate steps, R trainings, P pairs of rates.

Source: Ramdas, Gruenwald, Vovk & Shafer 2023, Stat. Sci. 38 (e-values); Turner, Ly & Gruenwald 2024, J. Stat. Plan.
Inference 230 (two rates); Howard & Ramdas 2022, Bernoulli 28 (quantiles).
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_N_RATES = 64
"""Of each group, evenly spaced by their angle, in which a share has the same error everywhere."""


def above(k: Any, n: Any, rate: Any) -> Any:
    """Evidence that the true rate is above `rate`, from `k` of `n` trainings."""
    from scipy import special

    mixture = special.betaln(0.5 + k, 0.5 + n - k) - special.betaln(0.5, 0.5)
    with np.errstate(divide="ignore"):
        cut = np.log(special.betainc(0.5 + n - k, 0.5 + k, 1 - rate)) - np.log(special.betainc(0.5, 0.5, 1 - rate))
    return mixture + cut - special.xlogy(k, rate) - special.xlog1py(n - k, -rate)


def below(k: Any, n: Any, rate: Any) -> Any:
    """Evidence that the true rate is below `rate`."""
    return above(n - k, n, 1 - rate)


def ordered(lower: int, upper: int, n: int, factor: float) -> float:
    """Evidence that the rate of one group is below `factor` times that of another.

    Args:
        lower, upper: Of each group, how many trainings.
        n: Of how many, of either.
        factor: Above 0.
    """
    ratios_PR = _ratios(factor)
    logs_P = np.array([lower, n - lower, upper, n - upper]) @ ratios_PR
    most = float(logs_P.max())
    return most + float(np.log(np.mean(np.exp(logs_P - most))))


@lru_cache(maxsize=64)
def _ratios(factor: float) -> Numbers:
    """What a training of four kinds, with and without of either group, multiplies at each pair of rates, (4, P)."""
    rates = np.sin(np.pi / 2 * (np.arange(_N_RATES) + 0.5) / _N_RATES) ** 2
    lower_P, upper_P = (each.ravel() for each in np.meshgrid(rates, rates))
    below_line_P = lower_P < factor * upper_P
    lower_P, upper_P = lower_P[below_line_P], upper_P[below_line_P]
    # The pair on the line that is nearest solves a quadratic equation; its smaller root, so that nothing cancels.
    both_P, middle_P = lower_P + upper_P, 1 + factor + lower_P + factor * upper_P
    line_P = 2 * both_P / (middle_P + np.sqrt(np.maximum(middle_P**2 - 8 * factor * both_P, 0)))
    pairs = ((lower_P, factor * line_P), (upper_P, line_P))
    return np.stack([np.log(x / y) for rate, near in pairs for x, y in ((rate, near), (1 - rate, 1 - near))])


def medians_ordered(lower_R: Numbers, upper_R: Numbers, last: float) -> float:
    """Evidence that the median of one group is below another's.

    Args:
        lower_R, upper_R: When it came in each training, or a value of each; infinite where it has not come by the end.
        last: The end in the group `upper`. There, what has not come counts as if it came right after it, in the group
            `lower` as if it never came: either is against the statement.
    """
    lower_R, upper_R = np.sort(lower_R), np.sort(np.minimum(upper_R, np.nextafter(last, np.inf)))
    steps_C = np.concatenate([[-np.inf], upper_R])
    n_lower_C, n_upper_C = np.searchsorted(lower_R, steps_C), np.searchsorted(upper_R, steps_C, side="right")
    return float(np.min(above(n_lower_C, lower_R.size, 0.5) + below(n_upper_C, upper_R.size, 0.5)))


def medians_not_ordered(lower_R: Numbers, upper_R: Numbers, last: float) -> float:
    """Evidence that it is not below it; `last` is the end in the group `lower`."""
    lower_R, upper_R = np.sort(np.minimum(lower_R, np.nextafter(last, np.inf))), np.sort(upper_R)
    steps_C = np.concatenate([[-np.inf], lower_R])
    n_lower_C, n_upper_C = (np.searchsorted(each_R, steps_C, side="right") for each_R in (lower_R, upper_R))
    return float(np.min(below(n_lower_C, lower_R.size, 0.5) + above(n_upper_C, upper_R.size, 0.5)))


def median_interval(steps_R: Numbers, confidence: float, lowest: float = 0.0) -> tuple[float, float]:
    """The median's interval, valid at all times; its ends are steps that were seen, `lowest`, or infinite."""
    least, sorted_R, n = np.log(2 / (1 - confidence)), np.sort(steps_R), steps_R.size
    seen_C = np.concatenate([[lowest], sorted_R, [np.inf]])
    is_too_low_C = below(np.searchsorted(sorted_R, seen_C, side="right"), n, 0.5) >= least
    is_too_high_C = above(np.searchsorted(sorted_R, seen_C), n, 0.5) >= least
    inside_C = seen_C[~is_too_low_C & ~is_too_high_C]
    return float(inside_C[0]), float(inside_C[-1])
