"""When trainings leave a zero of the gradient, found by training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.outcomes import AT_LEVEL
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import TrainingParameters


def escape_times(
    workload: Workload[Any],
    parameters: TrainingParameters,
    sigmas: Sequence[float],
    seeds: Sequence[int],
    most_steps: int,
) -> NDArray[np.float64]:
    """The step at which `eval_loss` is first 1% below that of the start, (n_sigmas, n_seeds), to 2%; infinite where it
    is not within `most_steps`. Those that have not left are trained again for twice as long."""
    trainings = [Training(replace(parameters, init_sigma=sigma), seed) for sigma in sigmas for seed in seeds]
    times, waiting, horizon = np.full(len(trainings), np.inf), np.arange(len(trainings)), min(256, most_steps)
    while waiting.size:
        probes = np.unique(np.geomspace(1, horizon, int(np.log(horizon) / np.log(1.02)) + 2).round().astype(np.int64))
        waiting_now = [trainings[lane] for lane in waiting]
        pack = [replace(each, parameters=replace(each.parameters, n_steps=horizon)) for each in waiting_now]
        evidence = Pack(workload, pack, extra_probe_steps=probes.tolist()).train_to_end().evidence
        loss = np.nan_to_num(evidence.metrics["eval_loss"], nan=np.inf)
        start = np.fmin(evidence.levels["zero"], loss[:, 0])
        below = loss < (start - AT_LEVEL * np.abs(start))[:, None]
        times[waiting] = np.where(below.any(1), evidence.steps[below.argmax(1)].astype(np.float64), np.inf)
        waiting = waiting[~np.isfinite(times[waiting])]
        if horizon == most_steps:
            break
        horizon = min(2 * horizon, most_steps)
    return times.reshape(len(sigmas), len(seeds))
