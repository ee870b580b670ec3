"""The final weights of trainings, stored on request, else from training them again.

`weights/<training_id>-<digest>.parquet` has one row for each parameter and buffer: its name, type, shape and bytes. The
weights of a repeated training that ends otherwise than recorded are not stored.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from attnsweep.orchestrator.inspection.retraining import retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.files import digest, open_file, parquet_names, publish
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.contract import Lanes
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import UserError

_log = logging.getLogger(__name__)

FOLDER = "weights"
_MAX_IN_MEMORY = 256
_SCHEMA = pa.schema(
    [("name", pa.string()), ("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("values", pa.large_binary())]
)


@dataclass(frozen=True)
class End:
    """A training's parameters and buffers by name; `difference`: how its end differs from the recorded one."""

    state: State
    difference: str = ""


def keep_weights(directory: SweepDirectory, trials: Collection[int], say: Callable[[str], None]) -> None:
    """Stores the final weights of these trials' trainings, after training them again. Raises SweepError if some then
    end otherwise than recorded; the weights of the others are kept."""
    kept = _kept(directory)
    rows = Ledger(directory.place).trainings(
        columns=["training_id"], filter=pc.field("trial").isin(list(trials)) & (pc.field("outcome") != "failed")
    )
    missing = [training_id for training_id in rows["training_id"].to_pylist() if training_id not in kept]
    wrong = []
    if missing:
        say(f"training {len(missing)} trainings again, to keep their weights ...")
    for first in range(0, len(missing), _MAX_IN_MEMORY):
        some = missing[first : first + _MAX_IN_MEMORY]
        for training_id, again in zip(some, retrain(directory, some), strict=True):
            if again.state is None or again.difference:
                wrong.append(f"{again.name}: {again.difference}")
            else:
                publish(directory.place, training_id, {FOLDER: partial(pq.write_table, _table(again.state))})
    if wrong:
        faults = "; ".join(wrong)
        raise SweepError(f"the weights of these trainings were not kept: {faults}", directory.place)


def ends_of(directory: SweepDirectory, training_ids: Sequence[str]) -> list[End]:
    """In this order. Trainings whose weights were not kept are trained again."""
    kept = _kept(directory)
    missing = [training_id for training_id in training_ids if training_id not in kept]
    retrained = dict(zip(missing, retrain(directory, missing), strict=True)) if missing else {}
    return [
        End(_read(kept[training_id]))
        if training_id in kept
        else End(retrained[training_id].ended, retrained[training_id].difference)
        for training_id in training_ids
    ]


def ended_lanes(directory: SweepDirectory, training_ids: Sequence[str]) -> tuple[Lanes[Any], State]:
    """Trains recorded trainings of one shape again; returns them as one batch with their final state. Warns of each
    that ends otherwise than recorded."""
    retrained = retrain(directory, training_ids)
    for again in retrained:
        if again.difference:
            _log.warning("%s: %s", again.name, again.difference)
    lanes = Lanes([again.training for again in retrained], torch.device("cpu"))
    states = [again.ended for again in retrained]
    return lanes, {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _kept(directory: SweepDirectory) -> dict[str, Path]:
    """The file that holds each training's weights."""
    folder = directory.place / FOLDER
    return {name.partition("-")[0]: folder / f"{name}.parquet" for name in parquet_names(folder)}


def _read(path: Path) -> State:
    with open_file(path) as file:
        if digest(file) != path.stem.partition("-")[2]:
            given = "a weights file whose bytes differ from those that were written"
            fix = "remove the file: the training is then repeated to get its weights"
            raise UserError(str(path), given=given, expected="an unchanged weights file", fix=fix)
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
