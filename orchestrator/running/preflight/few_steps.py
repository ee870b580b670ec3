"""Warns about a new sweep whose trainings end before they can leave their start."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.running.preflight.sample import Sample
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.forecast.prediction import predicted_escapes
from attnsweep.workloads.user_code import users_code

_SECONDS = 1.0
_SHARE = 0.05


def few_steps_warning(sample: Sample, seconds: float = _SECONDS) -> str | None:
    """Returns a warning if over 5% of the sampled trainings would end before the step at which they should leave their
    start.

    Looks at the trainings shape by shape until the time is up. Nothing is trained. A shape for which the workload's
    code raises is passed over: its rows will contain the error.

    Args:
        sample: Some trainings of the sweep.
        seconds: The longest time to look at trainings.
    """
    until = time.monotonic() + seconds
    steps, budgets = [], []
    with training_settings():
        for trainings in sample.shapes:
            predicted_steps = _predicted(sample.workload, trainings, until)
            steps.append(predicted_steps)
            budgets += [training.parameters.n_steps for training in trainings[: len(predicted_steps)]]
    predicted = np.concatenate([np.empty(0), *steps])
    is_known, is_late = ~np.isnan(predicted), predicted > budgets
    if is_late.sum() <= _SHARE * is_known.sum():
        return None
    return (
        f"warning: n_steps ends {is_late.sum()} of {is_known.sum()} trainings, drawn from this sweep at random, before"
        f" they leave their start, which takes them {np.median(predicted[is_late]):.0f} steps in the median: they will"
        " look stuck. attnsweep forecast says more"
    )


def _predicted(workload: Workload[Any], trainings: Sequence[Training[Any]], until: float) -> NDArray[np.float64]:
    """Returns the predicted escape steps of trainings of one shape; only of the first ones if the time runs out."""
    parts: list[NDArray[np.float64]] = [np.empty(0)]
    expected = 0.0
    # The first prediction includes start-up time, so a second prediction of one training estimates the time of the
    # following ones.
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
