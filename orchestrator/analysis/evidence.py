"""Evidence for statements on rates and medians, such as "this rate is below 0.1". The evidence is the natural logarithm
of an e-value, which stays valid however often it is computed while trainings arrive.

An e-value is a likelihood ratio, averaged over rates for which the statement holds: the likelihood of the trainings at
such a rate, over that at a null rate, at the limit where the statement no longer holds. If the statement is false, each
further training leaves its expectation the same or lowers it. So by Ville's inequality it ever exceeds 1 / 0.05 with a
chance of at most 5%, whatever the rule by which one looks at it and stops.

- **One rate**, `above` and `below`: the rates are averaged with the weights of a Beta(1/2, 1/2), cut off at the number
  that the rate is compared with. The null rate is this number: if the true rate is further on the wrong side of it, the
  expected e-value is only lower.
- **An order of two rates**, `ordered`, from pairs of trainings, one of each group. For each pair of rates with `lower <
  factor * upper`, the null is the pair with `lower = factor * upper` that is nearest by relative entropy. If the true
  rates also satisfy `lower = factor * upper`, at a distance d from the null pair, the expected ratio of one group is 1
  - a d and that of the other 1 + a d, with the same a because the pair is nearest: their product is at most 1.
- **A median** is below a step if more than half of the trainings reached the goal before it: a statement about a rate.
- **An order of two medians**, `medians_ordered`: the product of the evidence that one group's median is below a step
  and that the other group's is not, at the step where this product is smallest. At the true medians the product is an
  e-value by the rule above, so no correction is needed for the number of steps that are tried.

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
"""For each group, evenly spaced in arcsin(sqrt(rate)), where estimates of all rates have nearly equal variance."""


def above(k: Any, n: Any, rate: Any) -> Any:
    """Evidence that the true rate is above `rate`, if `k` of `n` trainings have the property; also of arrays."""
    from scipy import special

    mixture = special.betaln(0.5 + k, 0.5 + n - k) - special.betaln(0.5, 0.5)
    with np.errstate(divide="ignore"):
        cut = np.log(special.betainc(0.5 + n - k, 0.5 + k, 1 - rate)) - np.log(special.betainc(0.5, 0.5, 1 - rate))
    return mixture + cut - special.xlogy(k, rate) - special.xlog1py(n - k, -rate)


def below(k: Any, n: Any, rate: Any) -> Any:
    """Evidence that the true rate is below `rate`, if `k` of `n` trainings have the property; also of arrays."""
    return above(n - k, n, 1 - rate)


def ordered(lower: int, upper: int, n: int, factor: float) -> float:
    """Evidence that a property's rate in one group is below `factor` times that in another, if `lower` and `upper`
    trainings of `n` each have the property."""
    logs_P = np.array([lower, n - lower, upper, n - upper]) @ _ratios(factor)
    largest = float(logs_P.max())
    return largest + float(np.log(np.mean(np.exp(logs_P - largest))))


@lru_cache(maxsize=64)
def _ratios(factor: float) -> Numbers:
    """(4, P): what a training adds to the log likelihood ratio of P pairs of rates, by its group and property."""
    rates = np.sin(np.pi / 2 * (np.arange(_N_RATES) + 0.5) / _N_RATES) ** 2
    lower_P, upper_P = (grid.ravel() for grid in np.meshgrid(rates, rates))
    below_line_P = lower_P < factor * upper_P
    lower_P, upper_P = lower_P[below_line_P], upper_P[below_line_P]
    # `line_P` is the upper rate of the pair with `lower = factor * upper` that is nearest to each pair of rates by
    # relative entropy. It solves a quadratic equation, here without a difference of nearly equal numbers.
    both_P, middle_P = lower_P + upper_P, 1 + factor + lower_P + factor * upper_P
    line_P = 2 * both_P / (middle_P + np.sqrt(np.maximum(middle_P**2 - 8 * factor * both_P, 0)))
    pairs = ((lower_P, factor * line_P), (upper_P, line_P))
    return np.stack([np.log(x / y) for rate, near in pairs for x, y in ((rate, near), (1 - rate, 1 - near))])


def medians_ordered(lower_R: Numbers, upper_R: Numbers, last: float) -> float:
    """Evidence that the median step to a goal is smaller in the group `lower` than in `upper`.

    Args:
        lower_R, upper_R: (R,) the step at which each training of a group reached the goal, infinite if it did not. For
            medians of a metric, the training's value.
        last: The last step of the group `upper`. Its trainings that did not reach the goal count as if they reached it
            right after `last`, those of the group `lower` as if they never do: both choices lower the evidence.
    """
    lower_R, upper_R = np.sort(lower_R), np.sort(np.minimum(upper_R, np.nextafter(last, np.inf)))
    steps_C = np.concatenate([[-np.inf], upper_R])
    n_lower_C, n_upper_C = np.searchsorted(lower_R, steps_C), np.searchsorted(upper_R, steps_C, side="right")
    return float(np.min(above(n_lower_C, lower_R.size, 0.5) + below(n_upper_C, upper_R.size, 0.5)))


def medians_not_ordered(lower_R: Numbers, upper_R: Numbers, last: float) -> float:
    """Evidence against `medians_ordered`, with its arguments, but `last` is that of `lower`."""
    lower_R, upper_R = np.sort(np.minimum(lower_R, np.nextafter(last, np.inf))), np.sort(upper_R)
    steps_C = np.concatenate([[-np.inf], lower_R])
    n_lower_C, n_upper_C = (np.searchsorted(group_R, steps_C, side="right") for group_R in (lower_R, upper_R))
    return float(np.min(below(n_lower_C, lower_R.size, 0.5) + above(n_upper_C, upper_R.size, 0.5)))


def median_interval(steps_R: Numbers, confidence: float, lowest: float = 0.0) -> tuple[float, float]:
    """A confidence interval of the median step at which trainings reach a goal, valid however often it is computed.
    `lowest`: the smallest value that the median can have."""
    threshold, sorted_R, n = np.log(2 / (1 - confidence)), np.sort(steps_R), steps_R.size
    steps_C = np.concatenate([[lowest], sorted_R, [np.inf]])
    is_too_low_C = below(np.searchsorted(sorted_R, steps_C, side="right"), n, 0.5) >= threshold
    is_too_high_C = above(np.searchsorted(sorted_R, steps_C), n, 0.5) >= threshold
    inside_C = steps_C[~is_too_low_C & ~is_too_high_C]
    return float(inside_C[0]), float(inside_C[-1])
