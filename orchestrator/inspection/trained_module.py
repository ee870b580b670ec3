"""Loads a recorded training as a callable module, with the parameters and buffers of its end or of another step."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from attnsweep.orchestrator.inspection.kept_weights import End, ends_of
from attnsweep.orchestrator.inspection.recorded import ended_training, find_training, recorded_rows, recorded_tasks
from attnsweep.orchestrator.inspection.retraining import no_further, retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.construction import built_alone
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.intervening import hold_as
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import UserError

_log = logging.getLogger(__name__)

_OTHERS = "select trial, replicate, outcome from trainings where outcome not in ('failed', 'diverged')"


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModule:
    """The trained module of one training, with the training's row and parameters.

    Attributes:
        workload: The training's workload.
        training: The training's parameters and seed.
        row: The training's row of `trainings`.
        step: The step whose weights the module has.
        module: The module in eval mode, on the CPU, in the types that it was trained in.
    """

    workload: Workload[Any]
    training: Training[Any]
    row: Mapping[str, Any]
    step: int
    module: nn.Module


def trained_module(directory: SweepDirectory, name: str, step: int | None = None) -> TrainedModule:
    """Returns the trained module of a training, at its end or after a given number of steps.

    If the weights were not kept, or if a step is given, the training is trained again to its end. A warning is logged
    if the training then ends otherwise than recorded.

    Args:
        directory: The sweep.
        name: The training, as `find_training` accepts it.
        step: The number of steps taken; `None` for the end.

    Raises:
        UserError: If there is no such training or step, it failed, its weights there are not finite, or the sweep's
            workload is gone or not trusted.
    """
    workload = load_workload_of(directory)
    if step is None:
        row, _, training = ended_training(directory, workload, name, _OTHERS)
        (end,) = ends_of(directory, [row["training_id"]])
    else:
        row, training = _recorded(directory, workload, name)
        end = _at(directory, row, step)
    if end.difference:
        _log.warning("module of %s: %s", name, end.difference)
    module = built_alone(workload, training)
    load(module, end.state)
    return TrainedModule(
        workload=workload,
        training=training,
        row=row,
        step=row["n_steps"] if step is None else step,
        module=module.eval(),
    )


def load(module: nn.Module, state: State) -> None:
    """Loads a state (tensors by name) into a module, in the state's dtypes. Tied parameters stay tied."""
    hold_as(module, state)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, value in state.items():
        # The state may have a buffer for a clamped attention head. A module built for a step after the clamp lacks it.
        if name in tensors:
            tensors[name].data = value


def _recorded(directory: SweepDirectory, workload: Workload[Any], name: str) -> tuple[Mapping[str, Any], Training[Any]]:
    ledger = Ledger(directory.place)
    trainings = recorded_rows(ledger, [find_training(ledger, name)]).trainings
    (row,), (task,) = trainings.to_pylist(), recorded_tasks(workload, trainings)
    return row, task.training


def _at(directory: SweepDirectory, row: Mapping[str, Any], step: int) -> End:
    n_steps = row["n_steps"] or 0
    if not 0 <= step <= n_steps:
        raise UserError(
            "step",
            given=step,
            expected=f"a step that the training took, from 0 to {n_steps}",
            fix="choose a step in this range",
        )
    (again,) = retrain(directory, [row["training_id"]], no_further, step)
    return End(again.ended, again.difference)
