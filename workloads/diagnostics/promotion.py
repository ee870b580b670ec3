"""Promotion: is a training of low precision stuck at a zero of the loss, or at one of its arithmetic?

The training is repeated in float64, with the same seed and number of steps, in two ways: from its own start, and from
where it ended. The second is compared with going on in its own precision, because more steps alone free some trainings.

A training that is stuck in float64 from both starts is stuck there for another reason than its precision; whether for
ever is not shown. Docs: docs/zeros.md, zeros of the arithmetic. Axes: L lane.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Certificate, Lanes, Training, Workload
from attnsweep.workloads.engine.judging import is_stuck, judged
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import TrainingParameters

PROMOTED_DTYPE = "float64"


def can_be_promoted(parameters: TrainingParameters) -> bool:
    """Whether these trainings compute in less than float64."""
    return parameters.dtype != PROMOTED_DTYPE


def certify_by_promotion(workload: Workload[Any], lanes: Lanes[Any], state: State) -> list[Certificate | None]:
    """The certificate `promotion` for each of L stuck trainings; it agrees where float64 is stuck too.

    Args:
        workload: The problem.
        lanes: The trainings, of less than float64.
        state: Their parameters and buffers where they ended, (L, ...) by name.
    """
    return [Certificate("promotion", bool(stays)) for stays in stays_when_promoted(workload, lanes, state)]


def stays_when_promoted(workload: Workload[Any], lanes: Lanes[Any], state: State) -> NDArray[np.bool_]:
    """(L,) bool, whether trainings are stuck in float64 as well.

    False where they are not stuck from their own start, or are not from where they ended although they still are if
    they go on in their own precision.

    Args:
        workload, lanes, state: As `certify_by_promotion` takes them.
    """
    stays = _ends_stuck(workload, lanes, PROMOTED_DTYPE)
    freed = _chosen(stays, lambda few, ended: ~_ends_stuck(workload, few, PROMOTED_DTYPE, ended), lanes, state)
    held = _chosen(freed, lambda few, ended: _ends_stuck(workload, few, few.shared.dtype, ended), lanes, state)
    return stays & ~held


def _chosen(
    asked: NDArray[np.bool_],
    test: Callable[[Lanes[Any], State], NDArray[np.bool_]],
    lanes: Lanes[Any],
    state: State,
) -> NDArray[np.bool_]:
    """(L,) bool, the result of a test of the lanes asked about; false for the others, which are not trained."""
    passes = np.zeros_like(asked)
    if asked.any():
        index = torch.from_numpy(np.flatnonzero(asked)).to(lanes.device)
        passes[asked] = test(lanes.select(index), {name: value[index] for name, value in state.items()})
    return passes


def _ends_stuck(
    workload: Workload[Any], lanes: Lanes[Any], dtype: str, start: State | None = None
) -> NDArray[np.bool_]:
    """(L,) bool, whether these trainings end stuck in this precision.

    Args:
        workload, lanes: The trainings.
        dtype: The floating-point type.
        start: Where they start; their own start by default.
    """
    trainings = [Training(replace(each.parameters, dtype=dtype), each.seed) for each in lanes.trainings]
    result = Pack(workload, trainings, str(lanes.device), start=start).train_to_end()
    outcome = result.at_last_probe(judged(workload, trainings[0].parameters, result.evidence).outcome)
    return is_stuck(workload, outcome) & (result.diverged_step < 0)
