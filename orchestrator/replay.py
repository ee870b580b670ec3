"""Training again, alone in this process, what a sweep has trained: for what the ledger does not keep.

A training is a function of its parameters and seed, so it ends where the ledger says.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch

from orchestrator.ledger.reader import Ledger
from orchestrator.sweep_directory import SweepDirectory
from workloads.engine.contract import Lanes, Training
from workloads.engine.optimizers import State
from workloads.engine.pack import Pack
from workloads.errors import UserError
from workloads.registry import load_workload

_PREFIX = "param_"


def retrain(directory: SweepDirectory, training_ids: Sequence[str]) -> tuple[Lanes[Any], State]:
    """Trains some of a sweep's trainings, which may share a pack, to their end.

    Args:
        directory: The sweep.
        training_ids: As in the ledger.

    Returns:
        The trainings, in the order asked for, and their parameters and buffers where they ended, (L, ...) by name.

    Raises:
        UserError: For an id that is not in the ledger.
    """
    workload = load_workload(directory.spec.workload)
    threads = torch.get_num_threads()
    # As in a trainer: sums are split by threads.
    torch.set_num_threads(1)
    try:
        pack = Pack(workload, _recorded(directory, training_ids))
        while not pack.advance(1):
            pass
    finally:
        torch.set_num_threads(threads)
    return pack.final_state(np.arange(len(training_ids)))


def _recorded(directory: SweepDirectory, training_ids: Sequence[str]) -> list[Training[Any]]:
    declared = load_workload(directory.spec.workload).parameters
    rows = Ledger(directory.path).trainings(filter=pc.field("training_id").isin(training_ids)).to_pylist()
    by_id = {row["training_id"]: row for row in rows}
    for each in training_ids:
        if each not in by_id:
            raise UserError(
                "TRAINING_ID",
                given=each,
                expected=f"a training of {directory.path}",
                mend='see: attnsweep query DIR "select training_id from trainings"',
            )
    return [
        Training(
            declared.resolve({name: by_id[each][_PREFIX + name] for name in declared.declared()}), by_id[each]["seed"]
        )
        for each in training_ids
    ]
