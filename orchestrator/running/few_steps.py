"""The warning of a new sweep whose trainings end before they can leave their start."""

import time
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.training.identity import training_seed
from attnsweep.search_spaces.random_draws import drawn_parameters
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.forecast.prediction import predicted_escapes
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.user_code import users_code

_TRIALS = 64
_SECONDS = 1.0
_SHARE = 0.05


def few_steps_warning(spec: Sweep, workload: Workload[Any], seconds: float = _SECONDS) -> str | None:
    """One line if the budget decides the outcome of over 5% of the trainings whose start has a law.

    Looks at one training of each of 64 trials drawn at random, or of as many as the sweep has, shape by shape, until
    the time is up. Nothing is trained. Of a shape for which the workload's code raises, nothing is known: the rows will
    say why.

    Args:
        spec: A sweep that fits its workload.
        workload: Its workload.
        seconds: How long to look at most.
    """
    drawn = sorted(drawn_parameters(spec, workload.parameters, _TRIALS)[: spec.trials], key=_shape)
    until = time.monotonic() + seconds
    steps, budgets = [], []
    with training_settings():
        for _, of_shape in groupby(drawn, key=_shape):
            parameters = list(of_shape)
            found = _predicted(spec, workload, parameters, until)
            steps.append(found)
            budgets += [each.n_steps for each in parameters[: len(found)]]
    predicted = np.concatenate([np.empty(0), *steps])
    is_known, is_late = ~np.isnan(predicted), predicted > budgets
    if is_late.sum() <= _SHARE * is_known.sum():
        return None
    return (
        f"warning: n_steps ends {is_late.sum()} of {is_known.sum()} trainings, drawn from this sweep at random, before"
        f" they leave their start, which takes them {np.median(predicted[is_late]):.0f} steps in the median: they will"
        " look stuck. attnsweep forecast says more"
    )


def _shape(parameters: TrainingParameters) -> str:
    return repr(parameters.static_key())


def _predicted(
    spec: Sweep, workload: Workload[Any], parameters: list[TrainingParameters], until: float
) -> NDArray[np.float64]:
    """The predictions for trials of one shape, or for as many as the time left allows."""
    trainings = [Training(each, training_seed(spec.seed, trial, 0)) for trial, each in enumerate(parameters)]
    parts: list[NDArray[np.float64]] = [np.empty(0)]
    expected = 0.0
    # The first one is slow to begin with, so the time of the others is told by a second one alone.
    for n_next in (1, 1, 4, 16, 64):
        n_known, started = sum(map(len, parts)), time.monotonic()
        if n_known >= len(trainings) or started + expected > until:
            break
        try:
            with users_code(workload.name, "a workload that trains", "see attnsweep.check_workload"):
                parts.append(predicted_escapes(workload, trainings[n_known : n_known + n_next]))
        except UserError:
            break
        seconds = time.monotonic() - started
        expected = seconds if n_known == 0 else 4 * seconds
    return np.concatenate(parts)
