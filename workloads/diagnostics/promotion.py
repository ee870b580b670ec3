"""Tests the labels of a random sample of stuck trainings. Among other tests, trainings of low precision are repeated in
float64.

Promotion (repeating in float64) shows whether rounding is what holds a training. The training is repeated with the same
seed and number of steps twice: from its first state, and from its final state. The repetition from the final state is
compared with one in the training's own precision, because more steps alone free some trainings.

A training that is stuck in float64 from both states is stuck for another reason than its precision. The test does not
show that it is stuck for ever. See docs/zeros.md, zeros of the arithmetic. Axes: L training.
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
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.engine.verdicts import Verdicts
from attnsweep.workloads.parameters import TrainingParameters


def certify_stuck(
    workload: Workload[Any], pack: Pack[Any], shares: NDArray[np.float64], result: PackResult, verdicts: Verdicts
) -> list[Certificate | None]:
    """Tests with `Workload.certify` whether a random sample of the stuck trainings is labelled correctly. Returns the
    result for each training that was tested, `None` for all others.

    A training is in the sample if a random number drawn from its own seed is below its share. So the sample does not
    depend on which trainings share a pack (one program).

    Args:
        shares: For each training the probability that it is in the sample.
    """
    certificates: list[Certificate | None] = [None] * len(shares)
    outcome, detail = result.at_last_probe(verdicts.outcome), result.at_last_probe(verdicts.detail)
    lanes, _ = pack.final_state(np.arange(len(shares)))
    drawn = lanes.streams.uniform("certificate", (1,))[:, 0].cpu().numpy()
    chosen = np.flatnonzero(is_stuck(workload, outcome) & ~result.is_cut_short & (drawn < shares))
    if chosen.size:
        new_certificates = workload.certify(*pack.final_state(chosen), outcome[chosen], detail[chosen])
        for lane, certificate in zip(chosen, new_certificates, strict=True):
            certificates[lane] = certificate
    return certificates


PROMOTED_DTYPE = "float64"


def can_be_promoted(parameters: TrainingParameters) -> bool:
    """Returns whether trainings with these parameters can be repeated in float64, which requires that their own
    precision is lower."""
    return parameters.dtype != PROMOTED_DTYPE


def certify_by_promotion(workload: Workload[Any], lanes: Lanes[Any], state: State) -> list[Certificate | None]:
    """Repeats stuck trainings in float64. The certificate `promotion` confirms a training's label if the training is
    stuck there too.

    Args:
        state: The final parameters and buffers of the trainings by name, with trainings as first axis.
    """
    return [Certificate("promotion", bool(stays)) for stays in stays_when_promoted(workload, lanes, state)]


def stays_when_promoted(workload: Workload[Any], lanes: Lanes[Any], state: State) -> NDArray[np.bool_]:
    """Repeats stuck trainings in float64. Returns for each training whether it is stuck in float64 as well.

    The result is false if the training in float64 is not stuck when it begins from the first state. It is also false
    if, continued from the final state, it is stuck in its own precision but not in float64.
    """
    stays = _ends_stuck(workload, lanes, PROMOTED_DTYPE)
    freed = _tested(stays, lambda few, ended: ~_ends_stuck(workload, few, PROMOTED_DTYPE, ended), lanes, state)
    held = _tested(freed, lambda few, ended: _ends_stuck(workload, few, few.shared.dtype, ended), lanes, state)
    return stays & ~held


def _tested(
    chosen: NDArray[np.bool_], test: Callable[[Lanes[Any], State], NDArray[np.bool_]], lanes: Lanes[Any], state: State
) -> NDArray[np.bool_]:
    """Applies a test to the trainings that `chosen` marks."""
    passes = np.zeros_like(chosen)
    if chosen.any():
        index = torch.from_numpy(np.flatnonzero(chosen)).to(lanes.device)
        passes[chosen] = test(lanes.select(index), {name: value[index] for name, value in state.items()})
    return passes


def _ends_stuck(
    workload: Workload[Any], lanes: Lanes[Any], dtype: str, start: State | None = None
) -> NDArray[np.bool_]:
    """Trains in the given precision, by default from each training's own initial weights."""
    trainings = [Training(replace(training.parameters, dtype=dtype), training.seed) for training in lanes.trainings]
    result = Pack(workload, trainings, str(lanes.device), start=start).train_to_end()
    outcome = result.at_last_probe(judged(workload, trainings[0].parameters, result.evidence).outcome)
    return is_stuck(workload, outcome) & (result.diverged_step < 0)
