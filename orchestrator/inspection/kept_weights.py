"""The weights with which trainings ended, kept in the sweep directory where they were asked for.

`weights/<training_id>-<digest>.parquet` has one row for each parameter and buffer: its name, type, shape and bytes.
What is not kept is trained again, to the same bits on the same type of machine.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from attnsweep.orchestrator.inspection.replay import find_training, recorded_tasks, retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.location import Location
from attnsweep.orchestrator.storage.place import Place, digest
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import UserError

FOLDER = "weights"
_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("dtype", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("values", pa.large_binary()),
    ]
)


def trained_weights(directory: Location, training: str) -> State:
    """The parameters and buffers with which a training ended, by name; trained again unless they were kept.

    Args:
        directory: The sweep directory.
        training: `TRIAL/REPLICATE`, a `training_id` or its beginning.

    Raises:
        UserError: If there is no such training, the kept file is damaged, or the sweep's code is not trusted.
    """
    sweep = SweepDirectory.open(directory)
    training_id = find_training(Ledger(sweep.place), training)
    if (kept := kept_weights(sweep, training_id)) is not None:
        return kept
    return {name: value[0] for name, value in retrain(sweep, [training_id])[1].items()}


def kept_weights(directory: SweepDirectory, training_id: str) -> State | None:
    """The weights of a training by name; `None` if they were not kept. Raises UserError if the file is damaged."""
    name = _kept(directory.place).get(training_id)
    return None if name is None else _read(directory.place, name)


def keep_weights(directory: SweepDirectory, trials: Collection[int], say: Callable[[str], None]) -> None:
    """Keeps the weights of all trainings of some trials, which it trains again. Those already kept stay.

    Args:
        directory: A finished sweep.
        trials: Their numbers.
        say: Told what begins.
    """
    kept = _kept(directory.place)
    ledger = Ledger(directory.place)
    rows = ledger.trainings(filter=pc.field("trial").isin(list(trials)) & (pc.field("outcome") != "failed"))
    for of_shape in by_shape(directory, rows):
        training_ids = [row["training_id"] for row, _ in of_shape if row["training_id"] not in kept]
        if training_ids:
            say(f"training {len(training_ids)} trainings again, to keep their weights ...")
            _, state = retrain(directory, training_ids)
            directory.place.make_folders([FOLDER])
            for lane, training_id in enumerate(training_ids):
                table = _table({name: value[lane] for name, value in state.items()})
                directory.place.publish(training_id, {FOLDER: partial(pq.write_table, table)})


def ended_states(directory: SweepDirectory, training_ids: Sequence[str]) -> State:
    """The parameters and buffers (L, ...) with which trainings of one shape ended, kept or trained again."""
    kept = _kept(directory.place)
    if not all(each in kept for each in training_ids):
        return retrain(directory, training_ids)[1]
    states = [_read(directory.place, kept[each]) for each in training_ids]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def by_shape(directory: SweepDirectory, rows: pa.Table) -> Iterator[Sequence[tuple[Mapping[str, Any], Training[Any]]]]:
    """Rows of `trainings`, and the trainings that they are of, in groups that may share a pack."""
    tasks = recorded_tasks(load_workload_of(directory), rows)
    trainings = zip(rows.to_pylist(), (task.training for task in tasks), strict=True)

    def shape(of: tuple[Mapping[str, Any], Training[Any]]) -> str:
        return repr(of[1].parameters.static_key())

    for _, group in groupby(sorted(trainings, key=shape), key=shape):
        yield list(group)


def _kept(place: Place) -> dict[str, str]:
    """The names of the files, by training."""
    if not place.has_folder(FOLDER):
        return {}
    return {name.partition("-")[0]: name for name in place.names(FOLDER)}


def _read(place: Place, name: str) -> State:
    with place.open_file(FOLDER, name) as file:
        if digest(file) != name.partition("-")[2]:
            raise UserError(
                place.file_name(FOLDER, name),
                given="other bytes than were written",
                expected="the weights as they were kept",
                fix="remove the file: the weights are then trained again",
            )
        file.seek(0)
        rows = pq.read_table(file, schema=_SCHEMA).to_pylist()
    return {row["name"]: _tensor(row) for row in rows}


def _table(state: State) -> pa.Table:
    arrays = {name: value.numpy(force=True) for name, value in state.items()}
    rows = [
        {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "values": array.tobytes()}
        for name, array in arrays.items()
    ]
    return pa.Table.from_pylist(rows, _SCHEMA)


def _tensor(row: dict[str, Any]) -> torch.Tensor:
    array = np.frombuffer(row["values"], dtype=np.dtype(row["dtype"])).reshape(row["shape"])
    return torch.from_numpy(array.copy())
