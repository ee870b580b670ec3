"""The self-check at a sweep's end: 1% of its trainings, 2 to 1,000, are trained again and must end as before.

A training must not depend on its pack. Tests show this for the shipped workloads; the self-check shows it for this
sweep, with the user's workload and the kernels of the machines that trained it. Two trainings are replayed alone, which
differs most from a pack; the others in packs of up to 64, with other neighbours than before.

The last bits depend on the type of machine, so each training is replayed on the type that trained it, or left out.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from attnsweep.orchestrator.inspection.deviation import Deviation, deviation
from attnsweep.orchestrator.inspection.recorded import by_training, recorded_rows, recorded_tasks, to_replay
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.run_records import Replays
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import PackOrder, Pool, Raised, Trained
from attnsweep.orchestrator.training.tasks import Shape, Task
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.engine.lane_state import width_on

_N_ALONE = 2
_MAX_LANES = 64
_MAX_LOSSES_IN_A_ROW = 16
_WAIT_SECONDS = 0.5


def replay_some(
    directory: SweepDirectory, workload: Workload[Any], pool: Pool, should_stop: Callable[[], bool]
) -> Replays | None:
    """`None` if the self-check was stopped or trainers kept being lost."""
    ledger = Ledger(directory.place)
    chosen = to_replay(ledger.trainings(columns=["training_id", "outcome"]), directory.spec.seed)
    if not chosen:
        return Replays(deviations={}, disagreeing={})
    rows = recorded_rows(ledger, chosen)
    recorded, ids = by_training(rows), rows.trainings["training_id"].to_pylist()
    by_id = dict(zip(ids, recorded_tasks(workload, rows.trainings), strict=True))
    tasks = {training: by_id[training] for training in chosen}
    id_at = {(task.trial, task.replicate): training for training, task in tasks.items()}
    waiting = _packs(tasks, rows.trainings, directory)
    left_out: Counter[str] = Counter()
    results: dict[str, Deviation] = {}
    n_losses = 0
    while waiting or pool.running:
        if should_stop() or n_losses > _MAX_LOSSES_IN_A_ROW:
            return None
        # Empty until the first trainer has started.
        machines = pool.machines
        for order in [order for order in waiting if machines and order.machine not in (None, *machines)]:
            waiting.remove(order)
            left_out[order.machine or ""] += len(order.tasks)
        while pool.idle:
            fitting = next((order for order in waiting if order.machine in (None, *pool.idle)), None)
            if fitting is None:
                break
            waiting.remove(fitting)
            pool.train(fitting)
        for order, report in pool.reports(_WAIT_SECONDS):
            match report:
                case Trained():
                    n_losses = 0
                    replayed = by_training(report.rows)
                    results |= {id_at[place]: deviation(recorded[place], replay) for place, replay in replayed.items()}
                case Raised() if len(order.tasks) == 1:
                    # The original raised nothing, so this is a disagreement.
                    return _replays(results, [order.pack], left_out)
                case _ if order not in pool.running:
                    n_losses += not isinstance(report, Raised)
                    # One of its trainings, or a lack of memory, may be the cause: they go on one by one.
                    waiting += [
                        PackOrder(training, [task], as_in=order.as_in, machine=order.machine)
                        for training, task in tasks.items()
                        if task in order.tasks
                    ]
    return _replays(results, [], left_out)


def _packs(tasks: Mapping[str, Task], recorded: pa.Table, directory: SweepDirectory) -> list[PackOrder]:
    columns = recorded.select(["training_id", "device", "pack_size", "environment"]).to_pylist()
    machines = {row["training_id"]: directory.environment_of(row["environment"]).machine for row in columns}
    sizes = {row["training_id"]: row["pack_size"] or 1 for row in columns}
    widths = {row["training_id"]: width_on(row["device"] or "cpu", sizes[row["training_id"]]) for row in columns}
    # Larger packs than those of the sweep might not fit into memory.
    most_lanes = min(_MAX_LANES, max(sizes.values()))
    chosen = list(tasks)
    alike: dict[tuple[Shape, int | None, str | None], list[str]] = defaultdict(list)
    for training in chosen[_N_ALONE:]:
        alike[tasks[training].shape, widths[training], machines[training]].append(training)
    packs = [
        lanes[start : start + most_lanes] for lanes in alike.values() for start in range(0, len(lanes), most_lanes)
    ]
    packs += [[training] for training in chosen[:_N_ALONE]]
    return [
        PackOrder(lanes[0], [tasks[training] for training in lanes], as_in=sizes[lanes[0]], machine=machines[lanes[0]])
        for lanes in packs
    ]


def _replays(results: Mapping[str, Deviation], raised: Sequence[str], left_out: Mapping[str, int]) -> Replays:
    finite = {name: result.of_losses if result.of_losses < float("inf") else None for name, result in results.items()}
    disagreeing = {name: result.disagreements for name, result in results.items() if not result.agrees}
    return Replays(
        deviations=finite | dict.fromkeys(raised),
        disagreeing=disagreeing | {training: ["error"] for training in raised},
        left_out=left_out,
    )
