"""Tests the labels of a random sample of the stuck trainings."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Certificate, Verdicts, Workload
from attnsweep.workloads.engine.judging import is_stuck
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult


def certify_stuck(
    workload: Workload[Any],
    pack: Pack[Any],
    shares: NDArray[np.float64],
    result: PackResult,
    verdicts: Verdicts,
) -> list[Certificate | None]:
    """Tests the labels of a pack's L trainings. Returns certificates for stuck ones in the sample, `None` for others.

    A training is in the sample if a random number drawn from its own seed is below its share. The sample therefore
    depends neither on the pack nor on the other trainings.

    Args:
        workload: The problem.
        pack: The ended pack, which holds the trainings' final states.
        shares: (L,) the probability that each training is in the sample.
        result: The pack's measurements.
        verdicts: The workload's labels.
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
