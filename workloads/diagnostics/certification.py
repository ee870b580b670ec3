"""Putting the labels of a sample of the stuck trainings to a test of their own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnsweep.workloads.engine.contract import STUCK_OUTCOMES, Certificate, Training, Verdicts, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult


def certify_stuck(
    workload: Workload[Any],
    pack: Pack[Any],
    trainings: Sequence[Training[Any]],
    result: PackResult,
    verdicts: Verdicts,
) -> list[Certificate | None]:
    """A certificate for each training of a done pack that is stuck and in the sample; `None` for the rest.

    A training is in the sample if a number of its own is below its `certified_share`: who else is stuck, and in which
    pack, has no say.
    """
    certificates: list[Certificate | None] = [None] * len(trainings)
    outcome, detail = result.at_last_probe(verdicts.outcome), result.at_last_probe(verdicts.detail)
    lanes, _ = pack.final_state(np.arange(len(trainings)))
    drawn = lanes.streams.uniform("certificate", (1,))[:, 0].cpu().numpy()
    share = lanes.tensor("certified_share").cpu().numpy()
    is_stuck = np.isin(outcome, list(STUCK_OUTCOMES)) & (result.diverged_step < 0)
    chosen = np.flatnonzero(is_stuck & (drawn < share))
    if chosen.size:
        found = workload.certify(*pack.final_state(chosen), outcome[chosen], detail[chosen])
        for position, certificate in zip(chosen, found, strict=True):
            certificates[position] = certificate
    return certificates
