"""Checks before the first training that the trainings of a sweep can be trained side by side."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from attnsweep.orchestrator.running.preflight.sample import Sample
from attnsweep.orchestrator.training.error_text import STOPS
from attnsweep.orchestrator.training.tasks import training_seed
from attnsweep.workloads.diagnostics.verdicts import check_near_levels
from attnsweep.workloads.engine.construction import built_alone, check_alike, starting_state
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.judging import first_held, judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.plain import check_as_plain
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.user_code import user_code_of

_SECONDS = 0.3
_SIDE_BY_SIDE = 8
_MOST_WEIGHTS = 1_000_000
"""The largest modules whose loss is computed here, in weights, because larger ones may take long."""


def check_starts(sample: Sample, seconds: float = _SECONDS) -> None:
    """Refuses a workload whose modules differ in what must be equal, whose loss cannot be batched over trainings, or
    whose labels are unknown.

    Looks at a few trainings of each shape at a time until the time is up, and at a few in any case. Any other error of
    the workload's code is left to the trainings, whose rows will contain it.

    Args:
        sample: Some trainings of the sweep.
        seconds: The longest time to look at trainings.

    Raises:
        SpecError: If trainings side by side would differ from trainings alone, or if a label is unknown.
    """
    workload, until = sample.workload, time.monotonic() + seconds
    with training_settings():
        for trainings in sample.shapes:
            # Each group below consists of the first training and some of `others`. A shape with a single training is
            # compared with itself.
            others = trainings[1:] or trainings
            try:
                _compute(workload, trainings[:1])
                if user_code_of(workload) is not None:
                    _judge(workload, trainings[:_SIDE_BY_SIDE])
                    _compare(
                        workload, [*trainings, Training(trainings[0].parameters, training_seed(sample.spec.seed, 0, 1))]
                    )
                for first in range(0, len(others), _SIDE_BY_SIDE):
                    group = [trainings[0], *others[first : first + _SIDE_BY_SIDE]]
                    check_alike(workload, Lanes(group, torch.device("cpu")))
                    if time.monotonic() > until:
                        return
            except (UserError, *STOPS):
                raise
            except BaseException:  # noqa: BLE001  # The trainings' rows will contain the error.
                continue


def _compute(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> None:
    lanes = Lanes(trainings, torch.device("cpu"))
    parameters, buffers, template = starting_state(workload, lanes)
    if sum(value[0].numel() for value in parameters.values()) <= _MOST_WEIGHTS:
        with torch.no_grad():
            over_lanes(template, workload.loss)(parameters, buffers, workload.batches(lanes, range(1))[0])


def _judge(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> None:
    """Lets a user's workload label some starts, and some losses near reference levels. Shipped workloads are not
    checked here."""
    pack = Pack(workload, trainings)
    pack.advance(1, n_probes=1)
    evidence = pack.result().evidence
    judged(workload, trainings[0].parameters, evidence)
    first_held(workload, trainings[0].parameters, evidence, np.zeros(len(trainings), np.int64))
    check_near_levels(workload, trainings[0].parameters, evidence)


def _compare(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> None:
    """Checks that a user's workload trains as in plain PyTorch: the first training, and the one that differs from it
    most. Shipped workloads are not checked here."""
    first, *others = trainings
    values = first.parameters.values()

    def n_different(other: Training[Any]) -> int:
        return sum(value != values[name] for name, value in other.parameters.values().items())

    if sum(value.numel() for value in built_alone(workload, first).parameters()) <= _MOST_WEIGHTS:
        check_as_plain(workload, [first, max(others, key=n_different)])
