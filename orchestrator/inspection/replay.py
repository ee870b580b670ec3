"""Replays a training of a sweep: trains it again, alone in this process.

A training is a function of its parameters and seed, so the replay must end as the ledger says. A replay can also
measure at more steps than the ledger keeps, and return the trained parameters.
"""

import difflib
import hashlib
import math
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from attnsweep.orchestrator.inspection.deviation import Deviation, deviation
from attnsweep.orchestrator.inspection.replay_summary import Replay
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.storage.output_file import make_folder, writing_file
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.error_text import STOPS, text_of
from attnsweep.orchestrator.training.identity import Task
from attnsweep.orchestrator.training.messages import Rows
from attnsweep.orchestrator.training.rows import PackContext, curve_rows, ended_rows, failed_rows, head_rows
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.engine.schedule import dense_probe_steps
from attnsweep.workloads.engine.step_programs import step_programs
from attnsweep.workloads.engine.width import width_on
from attnsweep.workloads.errors import UserError

REPLAYED_SHARE = 0.01
"""The share of a sweep's trainings that `to_replay` chooses."""
FEWEST_REPLAYED = 2

_MOST_HINTS = 3


def replay(directory: SweepDirectory, name: str, trace: Path | None = None) -> Replay:
    """Trains one training of a sweep again, alone, and compares it with the ledger.

    The replay runs on the kind of device that the training ran on, or on the CPU if this machine has none of that kind.

    Args:
        directory: The sweep.
        name: The training, as `find_training` accepts it.
        trace: A folder for `curves.parquet` and, if there are heads, `heads.parquet`: measurements at every step, or at
            about 2,000 steps of a longer training, with the columns of the ledger's tables. The additional measurements
            do not change how the training ends.

    Raises:
        UserError: If there is no such training, the workload is gone, or the folder cannot be written.
    """
    ledger = Ledger(directory.place)
    recorded, every = recorded_rows(ledger, [find_training(ledger, name)]), ledger.curves_every()
    workload = load_workload_of(directory)
    (was_on,) = recorded.trainings["device"].to_pylist()
    device = "cuda" if was_on == "cuda" and torch.cuda.is_available() else "cpu"
    (environment,) = recorded.trainings["environment"].to_pylist()
    engine = directory.engine_of(environment)
    tasks = recorded_tasks(workload, recorded.trainings)
    (task,) = tasks
    probe_steps = dense_probe_steps(task.training.parameters.n_steps) if trace is not None else ()
    (pack_size,) = recorded.trainings["pack_size"].to_pylist()
    train = partial(_trained, workload, tasks, device, engine, probe_steps, width_on(device, pack_size))
    context = PackContext(directory.sweep, "replay", device, platform.node())
    replayed, traced = _train_alone(workload, tasks, context, train)
    if trace is not None:
        _write_trace(traced, trace)
    return Replay(
        sweep=directory.sweep,
        deviation=deviation(recorded, replayed, thinned=every > 1),
        notes=tuple(_notes(directory, was_on, device, every)),
    )


def retrain(directory: SweepDirectory, training_ids: Sequence[str]) -> tuple[Lanes[Any], State]:
    """Trains some of a sweep's trainings again, to their end. They must have one shape, to share a pack.

    Args:
        directory: The sweep.
        training_ids: Ids of trainings in the ledger.

    Returns:
        The trainings, in the order asked for, and their parameters and buffers where they ended, (L, ...) by name.

    Raises:
        UserError: For an id that is not in the ledger.
    """
    workload = load_workload_of(directory)
    ledger = Ledger(directory.place)
    rows = ledger.trainings(filter=pc.field("training_id").isin(training_ids))
    place = {each: index for index, each in enumerate(rows["training_id"].to_pylist())}
    for each in training_ids:
        if each not in place:
            raise _unknown(ledger, each)
    tasks = recorded_tasks(workload, rows.take([place[each] for each in training_ids]))
    with training_settings():
        return _trained(workload, tasks, "cpu", directory.engine).final_state(np.arange(len(tasks)))


def retrain_checked(directory: SweepDirectory, training_id: str) -> tuple[State, Deviation]:
    """Trains one training again, alone, to its end.

    Returns:
        Its parameters and buffers by name, and how far its end is from the recorded one.
    """
    workload = load_workload_of(directory)
    recorded = recorded_rows(Ledger(directory.place), [training_id])
    tasks = recorded_tasks(workload, recorded.trainings)
    (environment,) = recorded.trainings["environment"].to_pylist()
    context = PackContext(directory.sweep, "replay", "cpu", platform.node())
    with training_settings():
        pack = _trained(workload, tasks, "cpu", directory.engine_of(environment))
        rows = ended_rows(workload, tasks, pack, pack.result(), context)
        _, state = pack.final_state(np.array([0]))
    return {name: value[0] for name, value in state.items()}, deviation(recorded, rows)


def find_training(ledger: Ledger, name: str) -> str:
    """The id of one training.

    Args:
        ledger: The sweep's ledger.
        name: The training's id, a unique prefix of it, or `TRIAL/REPLICATE`.

    Raises:
        UserError: If no training or several have this name.
    """
    if re.fullmatch(r"\d{1,9}/\d{1,9}", name):
        trial, replicate = map(int, name.split("/"))
        mine = (pc.field("trial") == trial) & (pc.field("replicate") == replicate)
        found = ledger.trainings(columns=["training_id"], filter=mine)["training_id"].to_pylist()
    else:
        found = [each for each in _ids(ledger) if name and each.startswith(name)]
    if not found:
        raise _unknown(ledger, name)
    if len(found) > 1:
        raise UserError(
            "TRAINING_ID",
            given=name,
            expected=f"the name of one training; {len(found)} have it",
            fix=f"write more characters: {', '.join(found[:_MOST_HINTS])}, ...",
        )
    return str(found[0])


def recorded_rows(ledger: Ledger, training_ids: Sequence[str]) -> Rows:
    """The rows of some trainings in the ledger."""
    mine = pc.field("training_id").isin(training_ids)
    trainings = ledger.trainings(filter=mine)
    # Files are sorted by trial, so this condition skips all files without these trials.
    mine &= pc.field("trial").isin(trainings["trial"].unique().to_pylist())
    return Rows(trainings, ledger.curves(filter=mine), ledger.heads(filter=mine))


def recorded_tasks(workload: Workload[Any], trainings: pa.Table) -> list[Task]:
    """The tasks that train these rows of `trainings` again, in their order."""
    return [
        Task(
            row["trial"],
            row["replicate"],
            Training(workload.parameters.recorded(row), row["seed"]),
            # A column that rows of earlier versions lack.
            pruned_step=row.get("pruned_step"),
        )
        for row in trainings.to_pylist()
    ]


def to_replay(trainings: pa.Table, sweep_seed: int) -> list[str]:
    """The ids of a random hundredth, but at least two, of the trainings that did not fail. Deterministic.

    Args:
        trainings: Rows of `trainings`, with `training_id` and `outcome`.
        sweep_seed: The sweep's seed, which decides the choice.
    """
    ids = trainings.filter(pc.field("outcome") != "failed")["training_id"].to_pylist()
    n_chosen = max(math.ceil(REPLAYED_SHARE * len(ids)), FEWEST_REPLAYED)
    return sorted(ids, key=lambda each: hashlib.blake2b(f"{sweep_seed}/{each}".encode()).digest())[:n_chosen]


def _train_alone(
    workload: Workload[Any], tasks: Sequence[Task], context: PackContext, train: Callable[[], Pack[Any]]
) -> tuple[Rows, Rows]:
    """The rows that a trainer would return, also if the training raises; and the rows with the additional probes."""
    try:
        with training_settings():
            pack = train()
            result = pack.result()
            usual = result.at(workload.probe_steps(tasks[0].training.parameters))
            rows = ended_rows(workload, tasks, pack, usual, context)
            return rows, Rows(rows.trainings, curve_rows(workload, tasks, result), head_rows(workload, tasks, result))
    except STOPS:
        raise
    except BaseException as error:  # noqa: BLE001  # As in a trainer: what a training raises is its outcome.
        failed = failed_rows(workload, tasks, text_of(error), context)
        return failed, failed


def _write_trace(traced: Rows, folder: Path) -> None:
    make_folder(folder, "--trace")
    for name, rows in (("curves", traced.curves), ("heads", traced.heads)):
        if rows is not None:
            with writing_file(folder / f"{name}.parquet", "--trace") as path:
                pq.write_table(rows, path)


def _trained(
    workload: Workload[Any],
    tasks: Sequence[Task],
    device: str,
    engine: Engine,
    probe_steps: Sequence[int] = (),
    width: int | None = None,
) -> Pack[Any]:
    programs = step_programs(device, engine)
    prune_at = [task.pruned_step for task in tasks]
    trainings = [task.training for task in tasks]
    pack = Pack(workload, trainings, device, probe_steps, programs, width=width, prune_at=prune_at)
    while not pack.advance(1):
        pass
    return pack


def _ids(ledger: Ledger) -> list[str]:
    ids: list[str] = ledger.trainings(columns=["training_id"])["training_id"].to_pylist()
    return ids


def _unknown(ledger: Ledger, name: str) -> UserError:
    near = difflib.get_close_matches(name, _ids(ledger), n=_MOST_HINTS)
    return UserError(
        "TRAINING_ID",
        given=name,
        expected=f"a training of {ledger.place}, by its id or TRIAL/REPLICATE",
        fix=f"did you mean {' or '.join(near)}?"
        if near
        else 'see: attnsweep query DIR "select training_id, trial, replicate from trainings"',
    )


def _notes(directory: SweepDirectory, was_on: str | None, device: str, every: int) -> Iterator[str]:
    if every > 1:
        yield f"curves were thinned to one probe in {every}, with the first and the last: these are compared"
    if was_on not in (device, None):
        yield f"recorded on {was_on}, replayed on {device}: the last digits differ"
    then, now = directory.provenance.get("versions", {}).get("torch"), str(torch.__version__)
    if then and then.partition("+")[0] != now.partition("+")[0]:
        yield f"recorded with PyTorch {then}, replayed with {now}: the last digits may differ"
