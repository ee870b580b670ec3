"""Measures when trainings leave the level at which they start, by training them.

Axes: S seed, G value of init_sigma, L lane = (G, S), P probe.
"""

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
"""The ratio of the steps of two adjacent probes, once they are more than one step apart: how exact a time is."""
_ZERO = "zero"


def escape_times(
    workload: Workload[Any],
    parameters: TrainingParameters,
    sigmas: Sequence[float | None],
    seeds: Sequence[int],
    most_steps: int,
    seconds: float = math.inf,
) -> NDArray[np.float64]:
    """Returns the step at which each training leaves the plateau of its start, (G, S).

    The step is infinite for a training that does not leave within `most_steps`, and NaN for one that had not left when
    the time was up. A training has left at the first probe whose `eval_loss` is more than 1% below the reference level
    `zero`, or below its own loss at step 0 if that is smaller or the workload has no such level. All trainings that
    have not left are trained again for twice as many steps, so a training costs little more than twice the steps it
    needs.

    Args:
        workload: Any workload.
        parameters: The parameters of the trainings; `init_sigma` is replaced, and `n_steps` unless trainings depend on
            it.
        sigmas: G values of init_sigma; `None` is the framework's default.
        seeds: S seeds, the same at each sigma.
        most_steps: The most steps that a training takes.
        seconds: CPU seconds, after which no longer training is begun.
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
    """Returns whether `n_steps` changes the first steps too, as a learning-rate schedule does."""
    if parameters.learning_rate_schedule != "constant":
        return True
    try:
        replace(parameters, n_steps=_FIRST_HORIZON)
    except UserError:
        return True
    return False


def _probed(workload: Workload[Any], trainings: Sequence[Training[Any]], horizon: int) -> Evidence:
    """Trains for `horizon` steps and returns the measurements at probes that are at most 2% of the step apart."""
    if trainings[0].parameters.n_steps != horizon:
        trainings = [
            replace(training, parameters=replace(training.parameters, n_steps=horizon)) for training in trainings
        ]
    n_probes = int(np.log(horizon) / np.log(_SPACING)) + 2
    probes = np.unique(np.geomspace(1, horizon, n_probes).round().astype(np.int64))
    return Pack(workload, trainings, extra_probe_steps=probes.tolist()).train_to_end().evidence


def _left(evidence: Evidence) -> NDArray[np.float64]:
    """Returns the first probed step at which each loss is below the start's level, (L,); infinite if there is none."""
    loss = evidence.metrics["eval_loss"]
    start = np.fmin(evidence.levels.get(_ZERO, np.inf), loss[:, 0])
    below = np.nan_to_num(loss, nan=np.inf) < (start - AT_LEVEL * np.abs(start))[:, None]
    return np.where(below.any(1), evidence.steps[below.argmax(1)].astype(np.float64), np.inf)
