"""The final weights of trainings: stored in the sweep directory on request ("kept"), or used as the start of other
trainings (a "base").

`weights/<training_id>-<digest>.parquet` has one row for each parameter and buffer: its name, type, shape and bytes. A
training whose weights are not kept is repeated, with the same bits on the same type of machine. If the repeated
training ends otherwise than recorded, its weights are not kept.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
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
from attnsweep.workloads.base_names import HOW_TO_NAME, NAME, NamedBase, base_name
from attnsweep.workloads.bases import Base, base_text
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file, take_over
from attnsweep.workloads.parameters import Value

_log = logging.getLogger(__name__)

FOLDER = "weights"
_SCHEMA = pa.schema(
    [("name", pa.string()), ("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("values", pa.large_binary())]
)


@dataclass(frozen=True)
class End:
    """The final parameters and buffers of a training, and whether it ended as recorded in the ledger.

    Attributes:
        state: The parameters and buffers by name.
        difference: How this end differs from the recorded one, in words; empty if it does not.
    """

    state: State
    difference: str = ""


def trained_weights(directory: PlaceName, training: str) -> State:
    """Returns the final parameters and buffers of a training by name.

    If they were not kept, the training is trained again. A warning is logged if it then ends otherwise than recorded.

    Args:
        directory: The sweep directory.
        training: `TRIAL/REPLICATE`, a `training_id` or its beginning.

    Raises:
        UserError: If there is no such training, it fails when trained again, the kept file is damaged, or the sweep's
            code is not trusted.
    """
    sweep = SweepDirectory.open(directory)
    (end,) = ends_of(sweep, [find_training(Ledger(sweep.place), training)])
    if end.difference:
        _log.warning("weights of %s: %s", training, end.difference)
    return end.state


def keep_weights(directory: SweepDirectory, trials: Collection[int], say: Callable[[str], None]) -> None:
    """Stores the final weights of all trainings of some trials. Trainings whose weights are not stored yet are trained
    again.

    Args:
        directory: A finished sweep.
        say: Called with a message when a part begins.

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
    """Returns the final parameters and buffers of trainings, in the given order. Trainings whose weights were not kept
    are trained again.

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
    """Trains recorded trainings again, and returns them as one batch with their final parameters and buffers.

    The trainings must have equal static parameters. They are the first axis of each tensor.

    A warning is logged for each training that ends otherwise than recorded.

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
    """Stacks the parameters and buffers of several trainings: each tensor gets the trainings as a new first axis."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def by_shape(directory: SweepDirectory, rows: pa.Table) -> Iterator[Sequence[tuple[Mapping[str, Any], Training[Any]]]]:
    """Groups trainings: those of a group can be trained together in one batched program. Yields each group as pairs of
    a training's row in the table `trainings` and the training itself."""
    tasks = recorded_tasks(load_workload_of(directory), rows)
    trainings = zip(rows.to_pylist(), (task.training for task in tasks), strict=True)

    def shape(pair: tuple[Mapping[str, Any], Training[Any]]) -> str:
        return repr(pair[1].parameters.static_key())

    for _, group in groupby(sorted(trainings, key=shape), key=shape):
        yield list(group)


def _kept(directory: SweepDirectory) -> dict[str, tuple[Place, str]]:
    """Finds the stored weights: for each training the folder or object store that holds them, and the file's name."""
    homes = [place for place in directory.homes if place.has_folder(FOLDER)]
    return {name.partition("-")[0]: (place, name) for place in homes for name in place.names(FOLDER)}


def _read(place: Place, name: str) -> State:
    with place.open_file(FOLDER, name) as file:
        if digest(file) != name.partition("-")[2]:
            raise UserError(
                place.file_name(FOLDER, name),
                given="a weights file whose bytes differ from those that were written",
                expected="an unchanged weights file",
                fix="remove the file: the training is then repeated to get its weights",
            )
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


def find_base(
    workload: Workload[Any], values: Mapping[str, Value], known: Mapping[str, str] = MappingProxyType({})
) -> NamedBase | None:
    """Finds the trained weights (the base) from which a workload's trainings are to start. Returns `None` if no
    parameter asks for a base.

    The workload can read the base that was found, because it is made known in this process.

    Args:
        workload: The workload that starts from the base.
        values: Fixed values of parameters, by name.
        known: The bases that a sweep directory has stored, by name, and what the user gave for them. A stored base is
            used if the sweep that it comes from is gone.

    Raises:
        UserError: If there is no such training of this workload, or its weights cannot be had.
    """
    field = workload.parameters.base_field
    given = None if field is None else values.get(field)
    if not isinstance(given, str):
        return None
    if NAME.fullmatch(given):
        return _offered(given, given)
    where, colon, training = given.rpartition(":")
    if not colon or not where or not training:
        raise UserError("base", given=given, expected=HOW_TO_NAME, fix="name the training as DIRECTORY:TRIAL/REPLICATE")
    stored = next((name for name, origin in known.items() if origin == given), None)
    if stored is not None and not SweepDirectory.is_there(where):
        return _offered(stored, given)
    with _naming_base(given):
        name, text = _base_of(SweepDirectory.open(where), training, workload.name)
    take_over({name: text.encode()})
    return NamedBase(name=name, origin=given, text=text)


def _offered(name: str, origin: str) -> NamedBase:
    file = given_file(Path(name), "base", HOW_TO_NAME, "name the training itself")
    return NamedBase(name=name, origin=origin, text=file.read_text())


def _base_of(sweep: SweepDirectory, training: str, workload: str) -> tuple[str, str]:
    if sweep.spec.workload != workload:
        raise UserError(
            "base",
            given=f"a training of the workload {sweep.spec.workload}",
            expected=f"a training of the workload {workload}",
            fix=f"choose a training from a sweep of the workload {workload}",
        )
    ledger = Ledger(sweep.place)
    training_id = find_training(ledger, training)
    row = ledger.trainings(filter=pc.field("training_id") == training_id)
    (outcome,) = row["outcome"].to_pylist()
    if outcome == "failed":
        raise _refused_base(outcome, "a training that ended without an error")
    (end,) = ends_of(sweep, [training_id])
    if end.difference:
        raise UserError(
            "base",
            given=end.difference,
            expected="a training whose weights were kept, or that can be repeated to the last bit",
            fix="run the sweep of this training again with --keep-weights, and with the same library versions and"
            " the same kind of machine as now",
        )
    if not all(bool(torch.isfinite(value).all()) for value in end.state.values()):
        raise _refused_base(outcome, "a training that ended with finite weights")
    (task,) = recorded_tasks(load_workload_of(sweep), row)
    text = base_text(Base(workload=workload, parameters=task.training.parameters.values(), weights=end.state))
    return base_name(training_id, text), text


def _refused_base(outcome: str, expected: str) -> UserError:
    return UserError(
        "base", given=f"a training whose outcome is {outcome}", expected=expected, fix="choose another training"
    )


@contextmanager
def _naming_base(given: str) -> Iterator[None]:
    """A context that adds to every error the value that the user gave for the parameter `base`."""
    try:
        yield
    except UserError as error:
        subject = "" if error.subject == "base" else f"{error.subject}: "
        raise UserError(
            f"base={given}", given=error.given, expected=f"{subject}{error.expected}", fix=error.fix
        ) from error
