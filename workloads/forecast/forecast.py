"""Forecasts when trainings leave their initial plateau, the loss at which they start, from short trial trainings and
from the first gradient.

The trial trainings (pilots) have large values of init_sigma. The order, which is the power of init_sigma to which the
first gradient is proportional, gives a law by which their times are extrapolated to small values.

Axes: S seed, G value of init_sigma.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.diagnostics.outcomes import AT_LEVEL
from attnsweep.workloads.engine.contract import Evidence, Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.forecast.orders import NotAScaleFamilyError, Order, norm_threshold, orders, start_order
from attnsweep.workloads.forecast.prediction import predicted_escapes
from attnsweep.workloads.parameters import TrainingParameters

_FIRST_HORIZON = 256
_SPACING = 1.02
"""The ratio of the steps of two adjacent measurements, once more than one step apart. It says how exact a time is."""
_ZERO = "zero"


def escape_times(
    workload: Workload[Any],
    parameters: TrainingParameters,
    sigmas: Sequence[float | None],
    seeds: Sequence[int],
    most_steps: int,
    seconds: float = math.inf,
) -> NDArray[np.float64]:
    """Returns the step at which each training leaves its initial plateau, (n_sigmas, n_seeds).

    The step is infinite for a training that does not leave within `most_steps`, and NaN for one that had not left when
    `seconds` were over. A training has left at the first probe (measurement) whose `eval_loss` is more than 1% below
    the reference level `zero` (the loss of the output 0), or below its own loss at step 0 if that is smaller or the
    workload has no such level. All trainings that have not left are trained again for twice as many steps, so a
    training costs little more than twice the steps it needs.
    """
    trainings = [Training(replace(parameters, init_sigma=sigma), seed) for sigma in sigmas for seed in seeds]
    times, started = np.full(len(trainings), np.inf), time.process_time()
    waiting, horizon = np.arange(len(trainings)), min(_FIRST_HORIZON, most_steps)
    if depends_on_its_end(parameters):
        horizon = most_steps = parameters.n_steps
    while True:
        times[waiting] = _left(_probed(workload, [trainings[lane] for lane in waiting], horizon))
        waiting = waiting[~np.isfinite(times[waiting])]
        if waiting.size == 0 or horizon == most_steps:
            return times.reshape(len(sigmas), len(seeds))
        if time.process_time() - started > seconds:
            times[waiting] = np.nan
            return times.reshape(len(sigmas), len(seeds))
        horizon = min(2 * horizon, most_steps)


def depends_on_its_end(parameters: TrainingParameters) -> bool:
    """Returns whether the first steps of a training depend on `n_steps`, for example through its learning-rate
    schedule."""
    if parameters.learning_rate_schedule != "constant":
        return True
    try:
        replace(parameters, n_steps=_FIRST_HORIZON)
    except UserError:
        return True
    return False


def _probed(workload: Workload[Any], trainings: Sequence[Training[Any]], horizon: int) -> Evidence:
    """Trains for `horizon` steps, and returns the losses and metrics that were measured on the way. At first it
    measures after every step, later each time the number of steps has grown by at most 2%."""
    if trainings[0].parameters.n_steps != horizon:
        trainings = [
            replace(training, parameters=replace(training.parameters, n_steps=horizon)) for training in trainings
        ]
    n_probes = int(np.log(horizon) / np.log(_SPACING)) + 2
    probes = np.unique(np.geomspace(1, horizon, n_probes).round().astype(np.int64))
    return Pack(workload, trainings, extra_probe_steps=probes.tolist()).train_to_end().evidence


def _left(evidence: Evidence) -> NDArray[np.float64]:
    """Returns for each training the first measured step at which its loss is well below its initial plateau; infinite
    if there is none."""
    loss = evidence.metrics["eval_loss"]
    start = np.fmin(evidence.levels.get(_ZERO, np.inf), loss[:, 0])
    below = np.nan_to_num(loss, nan=np.inf) < (start - AT_LEVEL * np.abs(start))[:, None]
    return np.where(below.any(1), evidence.steps[below.argmax(1)].astype(np.float64), np.inf)


_RATIO = 3.0
_SAME_ORDER = 0.02
"""The largest difference between the order (power of init_sigma in the gradient) at a trial training's init_sigma and
the order of the law."""
_WHOLE = 0.1
"""The largest difference between an order (the gradient's power of init_sigma) and a whole number for a law."""
_DEFAULT = "null: the framework's default initialization has no scale"
_ORDER_SEEDS = 8
_PILOT_SECONDS = 10.0
"""The CPU seconds for the trial trainings (pilots) of one forecast. Once they are spent, no longer trial is begun."""
_BUDGETS = 2
"""Trial trainings (pilots) train for at most this multiple of the `n_steps` of the trainings that are forecast."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Escape:
    """The forecast, for one value of init_sigma, of when trainings leave their initial plateau.

    Attributes:
        init_sigma: The value; `None` for the framework's default initialization.
        is_measured: Whether trial trainings (pilots) were made at this value; otherwise the times follow from a law.
        times: For each seed the steps to leave the start; infinite for trainings that stay longer than any trial
            training lasted, NaN for trainings that were left out because their trials took too long.
    """

    init_sigma: float | None
    is_measured: bool
    times: NDArray[np.float64]
    n_steps: int

    @property
    def n_left_out(self) -> int:
        """The number of trainings for which it is not forecast when they leave their initial plateau, because the short
        trainings on which the forecast rests took too long."""
        return int(np.isnan(self.times).sum())

    @property
    def share(self) -> float:
        """The fraction of trainings that leave their initial plateau within `n_steps`. Trainings without a forecast
        count as staying."""
        return float((self.times <= self.n_steps).mean())

    def quantile(self, share: float) -> float | None:
        """Returns the step by which the fraction `share` of trainings has left the initial plateau; `None` if the
        trial trainings were too short to tell."""
        steps = float(np.quantile(np.nan_to_num(self.times, nan=np.inf, posinf=np.inf), share, method="higher"))
        return steps if math.isfinite(steps) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class EscapeForecast:
    """The forecast, for several values of init_sigma and several seeds, of when trainings leave their initial plateau.

    Attributes:
        orders: For each parameter of the module the order (power of init_sigma to which its gradient is proportional)
            at the smallest init_sigma; empty if orders could not be measured.
        law: In words, how times depend on init_sigma, or why no law is used.
        threshold: The value of init_sigma at which LayerNorms change the orders; `None` if there is no such value.
    """

    orders: tuple[Order, ...]
    law: str
    threshold: float | None
    escapes: tuple[Escape, ...]


def forecast_escapes(
    workload: Workload[Any], parameters: TrainingParameters, sigmas: Sequence[float | None], seeds: Sequence[int]
) -> EscapeForecast:
    """Forecasts when trainings leave their initial plateau, from the first gradient and from trial trainings."""
    scales = sorted({sigma for sigma in sigmas if sigma}, reverse=True)
    measured_orders: tuple[Order, ...] = ()
    pilots: tuple[float, float] | None = None
    try:
        if not scales:
            raise NotAScaleFamilyError(
                "a forecast needs init_sigma > 0, but init_sigma is " + (_DEFAULT if None in sigmas else "0")
            )
        ladder = _ladder(workload, parameters, scales, seeds[:_ORDER_SEEDS])
        measured_orders = ladder[-1][1]
        order, law = _law(measured_orders, parameters)
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
        orders=measured_orders,
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
    """Returns the times at which trainings with a small init_sigma leave their initial plateau. They are extrapolated
    from the times of trial trainings (pilots) with larger values of init_sigma.

    The order is the power of init_sigma (sigma) to which the first gradient is proportional. Order 0: the time T does
    not depend on sigma. Order 1, a loss that depends on a product of two weights: T = T_1 + ln(1/sigma) / rate, with
    the rate from the two pilots. Order p > 1, a product of p + 1 weights: T = tau sigma^(1-p).

    Args:
        order: The order p of the gradient.
        pilots: The two values of init_sigma of the trial trainings, the larger first.
        times: The times of the trial trainings, (2, n_seeds).
        sigma: The value of init_sigma to extrapolate to.
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
    """Returns by init_sigma the predicted step at which the training of each seed leaves its initial plateau. Leaves
    out a value of init_sigma if the prediction fails for at least one seed."""
    predicted: dict[float | None, NDArray[np.float64]] = {}
    for sigma in scales:
        times = predicted_escapes(workload, [Training(replace(parameters, init_sigma=sigma), seed) for seed in seeds])
        if not np.isnan(times).any():
            predicted[sigma] = times
    return predicted


_Ladder = list[tuple[float, tuple[Order, ...]]]


def _ladder(
    workload: Workload[Any], parameters: TrainingParameters, scales: Sequence[float], seeds: Sequence[int]
) -> _Ladder:
    """Measures for each parameter to which power of init_sigma its gradient is proportional. Repeats this at values of
    init_sigma that fall from the largest of `scales` to the smallest, each by a factor of at most 3."""
    n_rungs = math.ceil(math.log(scales[0] / scales[-1], _RATIO) - 1e-9)
    rungs = [*(scales[0] / _RATIO**rung for rung in range(n_rungs)), scales[-1]]
    return [(sigma, orders(workload, parameters, sigma, seeds)) for sigma in rungs]


def _law(parameter_orders: Sequence[Order], parameters: TrainingParameters) -> tuple[int | None, str]:
    """Returns the power of init_sigma to which the gradient at the first step is proportional, and in words how the
    time on the initial plateau depends on init_sigma. If the two cannot be told, returns `None` in place of the power,
    and the reason in place of the words."""
    measured = start_order(parameter_orders)
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
    """Finds two values of init_sigma (the standard deviation of the initial weights) for short trial trainings. At
    both, the first gradient is proportional to init_sigma to the power `order`. Returns `None` if there are no such
    values.

    They are the largest such value in `ladder`, and a third of it.
    """
    for sigma, parameter_orders in ladder:
        measured = start_order(parameter_orders)
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
    """Returns for each init_sigma the steps at which trainings leave their initial plateau. They are measured by trial
    trainings, or extrapolated from those if init_sigma is smaller than theirs."""
    trained: list[float | None] = [sigma for sigma in sigmas if not _is_below(sigma, pilots)]
    if pilots is None or order is None or len(trained) == len(sigmas):
        pilots = None
    else:
        trained += [sigma for sigma in pilots if sigma not in trained]
    times_GS = escape_times(workload, parameters, trained, seeds, _BUDGETS * parameters.n_steps, seconds=_PILOT_SECONDS)
    times = dict(zip(trained, times_GS, strict=True))
    if pilots is not None and order is not None:
        pilot_times = np.stack([times[sigma] for sigma in pilots])
        for sigma in sigmas:
            if sigma is not None and sigma not in times:
                times[sigma] = extrapolated(order, pilots, pilot_times, sigma)
    return times
