"""Promotion: a stuck training of low precision is repeated in float64, to see whether rounding is what holds it.

The training is repeated with the same seed and number of steps in two ways: from its first state, and from its final
state. The second is compared with a continuation in the training's own precision, because more steps alone free some
trainings.

A training that is stuck in float64 from both states is stuck for another reason than its precision. The test does not
show that it is stuck for ever. Docs: docs/zeros.md, zeros of the arithmetic. Axes: L lane.
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
    """Returns whether trainings with these parameters can be repeated in a higher precision, float64."""
    return parameters.dtype != PROMOTED_DTYPE


def certify_by_promotion(workload: Workload[Any], lanes: Lanes[Any], state: State) -> list[Certificate | None]:
    """Tests stuck trainings by repeating them in float64. The certificate `promotion` agrees if they stay stuck.

    Args:
        workload: The problem.
        lanes: The trainings, which compute in less than float64.
        state: The final parameters and buffers of the trainings, (L, ...) by name.
    """
    return [Certificate("promotion", bool(stays)) for stays in stays_when_promoted(workload, lanes, state)]


def stays_when_promoted(workload: Workload[Any], lanes: Lanes[Any], state: State) -> NDArray[np.bool_]:
    """Repeats trainings in float64, and returns which of them are stuck there as well, (L,) bool.

    False if the training in float64 is not stuck from the first state, or not from the final state although the same
    continuation in the training's own precision is.

    Args:
        workload, lanes, state: The same as for `certify_by_promotion`.
    """
    stays = _ends_stuck(workload, lanes, PROMOTED_DTYPE)
    freed = _tested(stays, lambda few, ended: ~_ends_stuck(workload, few, PROMOTED_DTYPE, ended), lanes, state)
    held = _tested(freed, lambda few, ended: _ends_stuck(workload, few, few.shared.dtype, ended), lanes, state)
    return stays & ~held


def _tested(
    chosen: NDArray[np.bool_],
    test: Callable[[Lanes[Any], State], NDArray[np.bool_]],
    lanes: Lanes[Any],
    state: State,
) -> NDArray[np.bool_]:
    """Applies a test to the chosen lanes only. Returns (L,) bool, false for the lanes that are not chosen."""
    passes = np.zeros_like(chosen)
    if chosen.any():
        index = torch.from_numpy(np.flatnonzero(chosen)).to(lanes.device)
        passes[chosen] = test(lanes.select(index), {name: value[index] for name, value in state.items()})
    return passes


def _ends_stuck(
    workload: Workload[Any], lanes: Lanes[Any], dtype: str, start: State | None = None
) -> NDArray[np.bool_]:
    """Trains the lanes in a precision, by default from their start, and returns whether each ends stuck, (L,)."""
    trainings = [Training(replace(training.parameters, dtype=dtype), training.seed) for training in lanes.trainings]
    result = Pack(workload, trainings, str(lanes.device), start=start).train_to_end()
    outcome = result.at_last_probe(judged(workload, trainings[0].parameters, result.evidence).outcome)
    return is_stuck(workload, outcome) & (result.diverged_step < 0)
