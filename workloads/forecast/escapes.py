"""When trainings leave the level at which they start. Axes: S seed, G value of init_sigma, L lane = (G, S), P probe."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.diagnostics.outcomes import AT_LEVEL
from attnsweep.workloads.engine.contract import Evidence, Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import TrainingParameters

_FIRST_HORIZON = 256
_SPACING = 1.02
"""Ratio of two probes, once they are more than a step apart: how well a time is known."""
_ZERO = "zero"


def escape_times(
    workload: Workload[Any],
    parameters: TrainingParameters,
    sigmas: Sequence[float | None],
    seeds: Sequence[int],
    most_steps: int,
    seconds: float = math.inf,
) -> NDArray[np.float64]:
    """The steps (G, S) at which trainings leave their start; infinite for those that do not within `most_steps`.

    NaN for those that had not left when the time was up.

    A training has left at the first probe whose `eval_loss` is more than 1% below the reference level `zero`, or below
    its own loss at step 0 if that is smaller or the workload has no such level. Horizons are doubled, so a training
    costs little more than twice the steps that it needs.

    Args:
        workload: Any.
        parameters: Those of the trainings; `init_sigma` is replaced, and `n_steps` unless trainings depend on it.
        sigmas: G values of init_sigma; `None` is the framework's default.
        seeds: S seeds, the same at each sigma.
        most_steps: The longest horizon.
        seconds: Of CPU, after which no longer horizon is begun.
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
    """Whether a shorter training is another training: its learning rate falls towards the end, or it counts epochs."""
    if parameters.learning_rate_schedule != "constant":
        return True
    try:
        replace(parameters, n_steps=_FIRST_HORIZON)
    except UserError:
        return True
    return False


def _probed(workload: Workload[Any], trainings: Sequence[Training[Any]], horizon: int) -> Evidence:
    """The measurements of trainings that take so many steps, at probes that are at most 2% apart."""
    if trainings[0].parameters.n_steps != horizon:
        trainings = [replace(each, parameters=replace(each.parameters, n_steps=horizon)) for each in trainings]
    n_probes = int(np.log(horizon) / np.log(_SPACING)) + 2
    probes = np.unique(np.geomspace(1, horizon, n_probes).round().astype(np.int64))
    return Pack(workload, trainings, extra_probe_steps=probes.tolist()).train_to_end().evidence


def _left(evidence: Evidence) -> NDArray[np.float64]:
    """(L,) the first step below the level of the start."""
    loss = evidence.metrics["eval_loss"]
    held = np.fmin(evidence.levels.get(_ZERO, np.inf), loss[:, 0])
    below = np.nan_to_num(loss, nan=np.inf) < (held - AT_LEVEL * np.abs(held))[:, None]
    return np.where(below.any(1), evidence.steps[below.argmax(1)].astype(np.float64), np.inf)
