"""Tests the labels of a random sample of stuck trainings; among other tests, repeats them in float64.

This promotion shows whether rounding holds a training. It is repeated with the same seed and number of steps from its
first state, and goes on from its final one. If it moves on then in its own precision too, it only lacked steps, and
rounding is not to blame. See docs/outcomes.md, certificates.
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


def certify_stuck(
    workload: Workload[Any], pack: Pack[Any], shares: NDArray[np.float64], result: PackResult, verdicts: Verdicts
) -> list[Certificate | None]:
    """By `Workload.certify`; `None` for trainings that are not stuck or not in the sample. `shares` has the probability
    with which each is; its own seed draws, so that the sample does not depend on the pack."""
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


def certify_by_promotion(workload: Workload[Any], lanes: Lanes[Any], state: State) -> list[Certificate | None]:
    """`promotion` agrees with a label if the training is stuck in float64 from its first state, and from its final one
    too unless that frees it in its own precision."""
    stays = _ends_stuck(workload, lanes, "float64")
    freed = _tested(stays, lambda tested, ended: ~_ends_stuck(workload, tested, "float64", ended), lanes, state)
    held = _tested(freed, lambda tested, ended: _ends_stuck(workload, tested, tested.shared.dtype, ended), lanes, state)
    return [Certificate("promotion", bool(confirmed)) for confirmed in stays & ~held]


def _tested(
    chosen: NDArray[np.bool_], test: Callable[[Lanes[Any], State], NDArray[np.bool_]], lanes: Lanes[Any], state: State
) -> NDArray[np.bool_]:
    passes = np.zeros_like(chosen)
    if chosen.any():
        index = torch.from_numpy(np.flatnonzero(chosen)).to(lanes.device)
        passes[chosen] = test(lanes.select(index), {name: value[index] for name, value in state.items()})
    return passes


def _ends_stuck(
    workload: Workload[Any], lanes: Lanes[Any], dtype: str, start: State | None = None
) -> NDArray[np.bool_]:
    """Trains in this precision, by default from initial weights."""
    trainings = [Training(replace(training.parameters, dtype=dtype), training.seed) for training in lanes.trainings]
    result = Pack(workload, trainings, str(lanes.device), start=start).train_to_end()
    outcome = result.at_last_probe(judged(workload, trainings[0].parameters, result.evidence).outcome)
    return is_stuck(workload, outcome) & (result.diverged_step < 0)
