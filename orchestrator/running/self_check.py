"""The self-check at the end of a sweep: a random hundredth of its trainings is trained again, each alone.

A training must not depend on the pack that it was trained in. Tests show this for the shipped workloads. The self-check
shows it for this sweep, with the user's own workload and the kernels of the machines that trained it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attnsweep.orchestrator.inspection.deviation import Deviation, deviation
from attnsweep.orchestrator.inspection.replay import recorded_rows, recorded_tasks, to_replay
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.replays import Replays, write_replays
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import PackOrder, Raised, Trained
from attnsweep.orchestrator.training.pool import Pool
from attnsweep.workloads.engine.contract import Workload

_MOST_LOSSES_IN_A_ROW = 16
_WAIT_SECONDS = 0.5


def replay_some(
    directory: SweepDirectory, workload: Workload[Any], pool: Pool, should_stop: Callable[[], bool]
) -> Replays | None:
    """Replays a hundredth of a finished sweep's trainings, but at least two, and records how they ended.

    Args:
        directory: The sweep.
        workload: Its workload.
        pool: Its trainers, all idle.
        should_stop: Called about twice a second. A self-check that is stopped records nothing.

    Returns:
        How the replays ended; `None` if the self-check was stopped or trainers kept being lost.
    """
    ledger = Ledger(directory.place)
    trainings = ledger.trainings(columns=["training_id", "outcome"])
    waiting = []
    for training_id in to_replay(trainings, directory.spec.seed):
        tasks = recorded_tasks(workload, recorded_rows(ledger, training_id).trainings)
        waiting.append(PackOrder(training_id, tasks))
    found: dict[str, Deviation] = {}
    n_losses = 0
    while waiting or pool.running:
        if should_stop() or n_losses > _MOST_LOSSES_IN_A_ROW:
            return None
        while waiting and pool.has_idle:
            pool.train(waiting.pop(0))
        for order, report in pool.reports(_WAIT_SECONDS):
            match report:
                case Trained():
                    n_losses = 0
                    found[order.pack] = deviation(recorded_rows(ledger, order.pack), report.rows)
                case Raised():
                    # In its pack this training did not raise.
                    return _record(directory, found, {order.pack: ["error"]})
                case _ if order not in pool.running:
                    n_losses += 1
                    waiting.append(order)
    return _record(directory, found, {})


def _record(directory: SweepDirectory, found: Mapping[str, Deviation], raised: Mapping[str, list[str]]) -> Replays:
    finite = {name: each.of_losses if each.of_losses < float("inf") else None for name, each in found.items()}
    disagreeing = {name: each.disagreements() for name, each in found.items() if not each.agrees}
    replays = Replays(deviations=finite | dict.fromkeys(raised), disagreeing=disagreeing | dict(raised))
    write_replays(directory, replays)
    return replays
