"""The final weights of trainings, stored on request ("kept") or used as the start of other trainings (a "base").

`weights/<training_id>-<digest>.parquet` has one row for each parameter and buffer: its name, type, shape and bytes. A
training whose weights are not kept is repeated, with the same bits on the same type of machine. If the repeated
training ends otherwise than recorded, its weights are not kept.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from attnsweep.orchestrator.inspection.recorded import find_training, recorded_tasks
from attnsweep.orchestrator.inspection.retraining import retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.place import Place, digest
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import UserError

_log = logging.getLogger(__name__)

FOLDER = "weights"
_SCHEMA = pa.schema(
    [("name", pa.string()), ("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("values", pa.large_binary())]
)


@dataclass(frozen=True)
class End:
    """A training's parameters and buffers by name; `difference` says how its end differs from the recorded one."""

    state: State
    difference: str = ""


def trained_weights(directory: PlaceName, training: str) -> State:
    """Returns the final parameters and buffers by name. If they were not kept, the training is trained again, with a
    warning if it then ends otherwise than recorded. `training` is as for `trained_heads`.

    Raises:
        UserError: If there is no such training, it fails when trained again, or the kept file is damaged.
    """
    sweep = SweepDirectory.open(directory)
    (end,) = ends_of(sweep, [find_training(Ledger(sweep.place), training)])
    if end.difference:
        _log.warning("weights of %s: %s", training, end.difference)
    return end.state


def keep_weights(directory: SweepDirectory, trials: Collection[int], say: Callable[[str], None]) -> None:
    """Stores the final weights of these trials' trainings, which are trained again where needed.

    `say` gets a message when a part begins.

    Raises:
        SweepError: If a training fails, or ends otherwise than recorded, when it is trained again. The weights of the
            others are kept.
    """
    kept = _kept(directory)
    ledger = Ledger(directory.place)
    rows = ledger.trainings(filter=pc.field("trial").isin(list(trials)) & (pc.field("outcome") != "failed"))
    wrong = []
    for group in by_shape(directory, rows):
        training_ids = [row["training_id"] for row, _ in group if row["training_id"] not in kept]
        if training_ids:
            say(f"training {len(training_ids)} trainings again, to keep their weights ...")
            directory.place.make_folders([FOLDER])
            for again in retrain(directory, training_ids):
                if again.state is None or again.difference:
                    wrong.append(f"{again.name}: {again.difference}")
                    continue
                write = partial(pq.write_table, _table(again.state))
                directory.place.publish(again.deviation.training_id, {FOLDER: write})
    if wrong:
        faults = "; ".join(wrong)
        raise SweepError(f"the weights of these trainings were not kept: {faults}", directory.place)


def ends_of(directory: SweepDirectory, training_ids: Sequence[str]) -> list[End]:
    """In the given order. Trainings whose weights were not kept are trained again.

    Raises:
        UserError: If a training fails when it is trained again, or a kept file is damaged.
    """
    kept = _kept(directory)
    ends = {training_id: End(_read(*kept[training_id])) for training_id in training_ids if training_id in kept}
    missing = [training_id for training_id in training_ids if training_id not in kept]
    if missing:
        retrained = zip(missing, retrain(directory, missing), strict=True)
        ends |= {training_id: End(again.ended, again.difference) for training_id, again in retrained}
    return [ends[training_id] for training_id in training_ids]


def ended_lanes(directory: SweepDirectory, training_ids: Sequence[str]) -> tuple[Lanes[Any], State]:
    """Trains recorded trainings of one shape again, and returns them as one batch with their final state. Warns of
    each that ends otherwise than recorded.

    Raises:
        UserError: For an id that is not in the ledger, or if a training fails when it is trained again.
    """
    retrained = retrain(directory, training_ids)
    for again in retrained:
        if again.difference:
            _log.warning("%s: %s", again.name, again.difference)
    lanes = Lanes([again.training for again in retrained], torch.device("cpu"))
    return lanes, stacked([again.ended for again in retrained])


def stacked(states: Sequence[State]) -> State:
    """The trainings become each tensor's first axis."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def by_shape(directory: SweepDirectory, rows: pa.Table) -> Iterator[Sequence[tuple[Mapping[str, Any], Training[Any]]]]:
    """Groups (row, training) that can be trained together."""
    tasks = recorded_tasks(load_workload_of(directory), rows)
    trainings = zip(rows.to_pylist(), (task.training for task in tasks), strict=True)

    def shape(pair: tuple[Mapping[str, Any], Training[Any]]) -> str:
        return repr(pair[1].parameters.static_key())

    for _, group in groupby(sorted(trainings, key=shape), key=shape):
        yield list(group)


def _kept(directory: SweepDirectory) -> dict[str, tuple[Place, str]]:
    """For each training the folder that holds its weights, and the file's name."""
    place = directory.place
    return {name.partition("-")[0]: (place, name) for name in place.names(FOLDER)}


def _read(place: Place, name: str) -> State:
    with place.open_file(FOLDER, name) as file:
        if digest(file) != name.partition("-")[2]:
            given = "a weights file whose bytes differ from those that were written"
            fix = "remove the file: the training is then repeated to get its weights"
            raise UserError(place.file_name(FOLDER, name), given=given, expected="an unchanged weights file", fix=fix)
        file.seek(0)
        rows = pq.read_table(file, schema=_SCHEMA).to_pylist()
    arrays = {row["name"]: np.frombuffer(row["values"], np.dtype(row["dtype"])).reshape(row["shape"]) for row in rows}
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def _table(state: State) -> pa.Table:
    arrays = {name: value.numpy(force=True) for name, value in state.items()}
    rows = [
        {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "values": array.tobytes()}
        for name, array in arrays.items()
    ]
    return pa.Table.from_pylist(rows, _SCHEMA)
