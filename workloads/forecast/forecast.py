"""Forecasts when trainings leave their start: measured at large init_sigma, extrapolated by the order of the gradient.

Axes: S seed, G value of init_sigma.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.forecast.escapes import escape_times
from attnsweep.workloads.forecast.orders import Order, norm_threshold, orders, start_order
from attnsweep.workloads.forecast.prediction import predicted_escapes
from attnsweep.workloads.forecast.start import NotAScaleFamilyError
from attnsweep.workloads.parameters import TrainingParameters

_RATIO = 3.0
_SAME_ORDER = 0.02
"""The largest difference of a pilot's order from that of the law."""
_WHOLE = 0.1
"""The largest difference of an order from a whole number."""
_DEFAULT = "null: the framework's default initialization has no scale"
_ORDER_SEEDS = 8
_PILOT_SECONDS = 10.0
"""Of CPU, for the pilots of one case: when they are spent, no longer pilot is begun."""
_BUDGETS = 2
"""Pilots train for up to so many times `n_steps`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Escape:
    """The forecast for one value of init_sigma.

    Attributes:
        init_sigma: `None` for the framework's default.
        is_measured: Whether pilots trained at this value; else their times follow from a law.
        times: (S,) steps to leave the start; infinite for trainings that stay longer than any pilot trained, NaN for
            those left out, because their pilots took too long.
        n_steps: The budget of the sweep.
    """

    init_sigma: float | None
    is_measured: bool
    times: NDArray[np.float64]
    n_steps: int

    @property
    def n_left_out(self) -> int:
        """The number of trainings whose pilots took too long."""
        return int(np.isnan(self.times).sum())

    @property
    def share(self) -> float:
        """Of the trainings, those that leave within `n_steps`; those left out count as if they did not."""
        return float((self.times <= self.n_steps).mean())

    def quantile(self, share: float) -> float | None:
        """The steps after which this share of the trainings has left; `None` if that is longer than any pilot."""
        found = float(np.quantile(np.nan_to_num(self.times, nan=np.inf, posinf=np.inf), share, method="higher"))
        return found if math.isfinite(found) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class EscapeForecast:
    """The forecast for trainings that differ in init_sigma and seed alone.

    Attributes:
        orders: Of each parameter of the module, at the smallest value of init_sigma; empty if there are none.
        law: How times follow init_sigma, or why no law is used, in words.
        threshold: The value of init_sigma at which norms change the orders, if there is one.
        escapes: One for each value of init_sigma, in the order given.
    """

    orders: tuple[Order, ...]
    law: str
    threshold: float | None
    escapes: tuple[Escape, ...]


def forecast_escapes(
    workload: Workload[Any],
    parameters: TrainingParameters,
    sigmas: Sequence[float | None],
    seeds: Sequence[int],
) -> EscapeForecast:
    """Measures orders, trains pilots and extrapolates.

    Args:
        workload: Any.
        parameters: Those of the trainings, but for their `init_sigma`.
        sigmas: G values of init_sigma; `None` is the framework's default.
        seeds: S seeds of the pilots.
    """
    scales = sorted({sigma for sigma in sigmas if sigma}, reverse=True)
    found: tuple[Order, ...] = ()
    pilots: tuple[float, float] | None = None
    try:
        if not scales:
            raise NotAScaleFamilyError("init_sigma is " + (_DEFAULT if None in sigmas else "0"))
        ladder = _ladder(workload, parameters, scales, seeds[:_ORDER_SEEDS])
        found = ladder[-1][1]
        order, law = _law(found, parameters)
        pilots = None if order is None else _pilots(ladder, order)
    except NotAScaleFamilyError as error:
        law = f"not a scale family: {error}"
    threshold = norm_threshold(workload, parameters, seeds[0]) if scales else None
    predicted = _predicted(workload, parameters, scales, seeds)
    others = [sigma for sigma in sigmas if sigma not in predicted]
    times = dict(predicted)
    if others:
        times |= _times(workload, parameters, others, seeds, pilots, order if pilots else None)
    return EscapeForecast(
        orders=found,
        law=law,
        threshold=threshold,
        escapes=tuple(
            Escape(
                init_sigma=sigma,
                is_measured=sigma not in predicted and not _is_below(sigma, pilots),
                times=times[sigma],
                n_steps=parameters.n_steps,
            )
            for sigma in sigmas
        ),
    )


def extrapolated(
    order: int, pilots: tuple[float, float], times: NDArray[np.float64], sigma: float
) -> NDArray[np.float64]:
    """The times (S,) at a value of init_sigma below both pilots.

    Order 0: the time does not depend on init_sigma. Order 1, a product of two factors: T = T_1 + ln(1/sigma) / rate,
    the rate from the two pilots. Order p > 1, a product of p + 1 factors: T = tau sigma^(1-p).

    Args:
        order: p.
        pilots: Their two values of init_sigma, falling.
        times: (2, S) theirs.
        sigma: The value.
    """
    large, small = times
    if order != 1:
        return np.asarray(small * (pilots[1] / sigma) ** max(order - 1, 0))
    both = np.isfinite(times).all(0)
    if not both.any():
        return np.full_like(small, np.inf)
    steps_per_e = (small[both] - large[both]).mean() / math.log(pilots[0] / pilots[1])
    return np.asarray(small + steps_per_e * math.log(pilots[1] / sigma))


def _predicted(
    workload: Workload[Any], parameters: TrainingParameters, scales: Sequence[float], seeds: Sequence[int]
) -> dict[float | None, NDArray[np.float64]]:
    """The times (S,) by init_sigma, of the values at which each training has a law of its own."""
    found: dict[float | None, NDArray[np.float64]] = {}
    for sigma in scales:
        times = predicted_escapes(workload, [Training(replace(parameters, init_sigma=sigma), seed) for seed in seeds])
        if not np.isnan(times).any():
            found[sigma] = times
    return found


_Ladder = list[tuple[float, tuple[Order, ...]]]


def _ladder(
    workload: Workload[Any], parameters: TrainingParameters, scales: Sequence[float], seeds: Sequence[int]
) -> _Ladder:
    """Values of init_sigma from the largest down to the smallest, by factors of 3, each with its orders."""
    n_rungs = math.ceil(math.log(scales[0] / scales[-1], _RATIO) - 1e-9)
    rungs = [*(scales[0] / _RATIO**rung for rung in range(n_rungs)), scales[-1]]
    return [(sigma, orders(workload, parameters, sigma, seeds)) for sigma in rungs]


def _law(found: Sequence[Order], parameters: TrainingParameters) -> tuple[int | None, str]:
    """The order whose law holds, and the law in words; no order if no law is known."""
    measured = start_order(found)
    if measured is None:
        return None, "no law: no gradient at the start"
    order = round(measured)
    if abs(measured - order) > _WHOLE:
        return None, f"no law: order {measured:.2f} at the smallest init_sigma, between two"
    if parameters.optimizer != "sgd":
        return None, f"no law: steps of {parameters.optimizer} do not shrink with the gradient"
    if parameters.learning_rate_schedule != "constant":
        return None, f"no law: the learning rate is not constant ({parameters.learning_rate_schedule})"
    if order > 1 and parameters.weight_decay > 0:
        return None, f"no law: weight decay holds a start of order {order}"
    words = ("T does not depend on init_sigma", "T = T_1 + ln(1/sigma) / rate, two factors")
    if order < len(words):
        return order, words[order]
    return order, f"T ~ sigma^-{order - 1}, {order + 1} factors"


def _pilots(ladder: _Ladder, order: int) -> tuple[float, float] | None:
    """The largest value of init_sigma at which the start has the order of the law, and a third of it."""
    for sigma, found in ladder:
        measured = start_order(found)
        if measured is not None and abs(measured - order) <= _SAME_ORDER:
            return sigma, sigma / _RATIO
    return None


def _is_below(sigma: float | None, pilots: tuple[float, float] | None) -> bool:
    return pilots is not None and sigma is not None and 0 < sigma < pilots[1]


def _times(
    workload: Workload[Any],
    parameters: TrainingParameters,
    sigmas: Sequence[float | None],
    seeds: Sequence[int],
    pilots: tuple[float, float] | None,
    order: int | None,
) -> dict[float | None, NDArray[np.float64]]:
    """The times (S,) by init_sigma."""
    trained: list[float | None] = [sigma for sigma in sigmas if not _is_below(sigma, pilots)]
    if pilots is None or order is None or len(trained) == len(sigmas):
        pilots = None
    else:
        trained += [sigma for sigma in pilots if sigma not in trained]
    found = escape_times(workload, parameters, trained, seeds, _BUDGETS * parameters.n_steps, seconds=_PILOT_SECONDS)
    times = dict(zip(trained, found, strict=True))
    if pilots is not None and order is not None:
        base = np.stack([times[sigma] for sigma in pilots])
        for sigma in sigmas:
            if sigma is not None and sigma not in times:
                times[sigma] = extrapolated(order, pilots, base, sigma)
    return times
