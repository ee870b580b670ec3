"""Finds the weights of a training of another sweep by its name, for a workload that starts from them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.compute as pc
import torch

from attnsweep.orchestrator.inspection.kept_weights import ends_of
from attnsweep.orchestrator.inspection.recorded import find_training, recorded_tasks
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.base_names import HOW_TO_NAME, NAME, NamedBase, base_name
from attnsweep.workloads.bases import Base, base_text
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file, take_over
from attnsweep.workloads.parameters import Value


def find_base(
    workload: Workload[Any], values: Mapping[str, Value], known: Mapping[str, str] = MappingProxyType({})
) -> NamedBase | None:
    """Finds the base (weights of an earlier training) that the parameter values name, and registers it in this process
    under its name; `None` if they name none.

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
        raise UserError("base", given=given, expected=HOW_TO_NAME, fix="write the training's name in this form")
    stored = next((name for name, origin in known.items() if origin == given), None)
    if stored is not None and not SweepDirectory.is_there(where):
        return _offered(stored, given)
    with _about(given):
        name, text = _read(SweepDirectory.open(where), training, workload.name)
    take_over({name: text.encode()})
    return NamedBase(name=name, origin=given, text=text)


def _offered(name: str, origin: str) -> NamedBase:
    file = given_file(Path(name), "base", HOW_TO_NAME, "name the training itself")
    return NamedBase(name=name, origin=origin, text=file.read_text())


def _read(sweep: SweepDirectory, training: str, workload: str) -> tuple[str, str]:
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
        raise _no_weights(outcome, "a training that ended without an error")
    (end,) = ends_of(sweep, [training_id])
    if end.difference:
        raise UserError(
            "base",
            given=end.difference,
            expected="a training whose weights were kept, or that can be repeated to the last bit",
            fix="run the base's sweep with --keep-weights, with the same library versions and on the same kind of"
            " machine as now",
        )
    if not all(bool(torch.isfinite(value).all()) for value in end.state.values()):
        raise _no_weights(outcome, "a training that ended with finite weights")
    (task,) = recorded_tasks(load_workload_of(sweep), row)
    text = base_text(Base(workload=workload, parameters=task.training.parameters.values(), weights=end.state))
    return base_name(training_id, text), text


def _no_weights(outcome: str, expected: str) -> UserError:
    return UserError(
        "base", given=f"a training whose outcome is {outcome}", expected=expected, fix="choose another training"
    )


@contextmanager
def _about(given: str) -> Iterator[None]:
    """A context that adds the user's value of the parameter `base` to every error."""
    try:
        yield
    except UserError as error:
        subject = "" if error.subject == "base" else f"{error.subject}: "
        raise UserError(
            f"base={given}", given=error.given, expected=f"{subject}{error.expected}", fix=error.fix
        ) from error
