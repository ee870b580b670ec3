"""Trains recorded trainings again, and compares each with its rows.

A training is a function of its parameters and seed, so it ends as recorded: to the last bit with the engine that its
environment names, on the type of machine that it ran on, and on a GPU in a pack of the same size. If this machine has
no such device or compiler, the next best is used, and a note says so, as of any other type of machine.
"""

import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attnsweep.orchestrator.inspection.deviation import Deviation, deviation, last_line
from attnsweep.orchestrator.inspection.recorded import Place, by_training, recorded_rows, recorded_tasks
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.environment import Engine, versions
from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import Rows
from attnsweep.orchestrator.training.rows import PackContext, ended_rows, failed_rows
from attnsweep.orchestrator.training.tasks import Shape, Task
from attnsweep.orchestrator.training.trainer import STOPS, machine_of, text_of
from attnsweep.workloads.engine.compiling import executors_on
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.executors import Executors, NoCompilerError
from attnsweep.workloads.engine.lane_state import width_on
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.probing import probe_steps_of
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Retrained:
    """A recorded training that was trained again to its end.

    Attributes:
        notes: Why the last digits may differ (another device, engine, type of machine or version of PyTorch), and that
            curves were thinned.
        state: The parameters and buffers at its end or the requested step, by name, on the CPU; `None` if it raised.
    """

    training: Training[Any]
    deviation: Deviation
    notes: tuple[str, ...]
    state: State | None

    @property
    def name(self) -> str:
        return f"{self.deviation.recorded['trial']}/{self.deviation.recorded['replicate']}"

    @property
    def difference(self) -> str:
        """In words; empty if it ended as recorded."""
        if self.deviation.agrees:
            return ""
        if self.state is None:
            return f"trained again it fails: {last_line(self.deviation.replayed['error'])}"
        why = f" ({'; '.join(self.notes)})" if self.notes else ""
        return f"trained again it ends otherwise than recorded, in {', '.join(self.deviation.disagreements)}{why}"

    @property
    def ended(self) -> State:
        """Raises UserError if it raised."""
        if self.state is None:
            raise unrepeatable(self.name, self.deviation.replayed["error"])
        return self.state


def unrepeatable(name: str, error: str) -> UserError:
    given = f"a training that fails when it is repeated: {last_line(error)}"
    fix = "correct the cause of the error, or choose another training"
    return UserError(name, given=given, expected="a training that can be repeated", fix=fix)


@dataclass(frozen=True)
class Setting:
    """What recorded trainings must have in common to be repeated exactly in one pack; `width`: its lanes on a GPU."""

    shape: Shape
    device: str
    engine: Engine
    width: int | None


def retrain(directory: SweepDirectory, training_ids: Sequence[str], at_step: int | None = None) -> list[Retrained]:
    """Trains trainings again to their end; returns them in the same order.

    Args:
        at_step: The step whose state is returned, of a single training, because others in its pack could run ahead of
            it; by default the end.

    Raises:
        PoolError: If this machine cannot compile their steps.
    """
    workload, ledger = load_workload_of(directory), Ledger(directory.place)
    rows, every = recorded_rows(ledger, training_ids), ledger.curves_every()
    recorded, records = by_training(rows), rows.trainings.to_pylist()
    tasks = recorded_tasks(workload, rows.trainings)
    settings = [setting_of(directory, row, task) for row, task in zip(records, tasks, strict=True)]
    alike: dict[Setting, list[Task]] = defaultdict(list)
    for setting, task in zip(settings, tasks, strict=True):
        alike[setting].append(task)
    ended: dict[Place, tuple[Rows, State | None]] = {}
    for setting, group in alike.items():
        size = setting.width or len(group)
        context = PackContext(directory.sweep, "replay", setting.device, platform.node())
        executors = executors_on(setting.device, setting.engine)
        for first in range(0, len(group), size):
            ended |= _trained(workload, group[first : first + size], setting, executors, context, at_step)
    retrained = {}
    for row, task, setting in zip(records, tasks, settings, strict=True):
        place = task.trial, task.replicate
        replayed, state = ended[place]
        retrained[row["training_id"]] = Retrained(
            training=task.training,
            deviation=deviation(recorded[place], replayed, thinned=every > 1),
            notes=notes_on(directory, row, setting, every),
            state=state,
        )
    return [retrained[training_id] for training_id in training_ids]


def _trained(
    workload: Workload[Any],
    tasks: Sequence[Task],
    setting: Setting,
    executors: Executors | None,
    context: PackContext,
    at_step: int | None,
) -> Mapping[Place, tuple[Rows, State | None]]:
    """Whatever a training raises becomes its row, as in a trainer."""
    steps = [] if at_step is None else [at_step]
    trainings, prune_at = [task.training for task in tasks], [task.pruned_step for task in tasks]
    try:
        with training_settings():
            pack = Pack(workload, trainings, setting.device, steps, executors, width=setting.width, prune_at=prune_at)
            while at_step is not None and not pack.done and pack.step < at_step:
                pack.advance(1, 1)
            early = None if at_step is None else _state(pack, len(tasks))
            result = pack.train_to_end(1).at(probe_steps_of(workload, trainings[0].parameters))
            rows = by_training(ended_rows(workload, tasks, pack, result, context))
            state = early or _state(pack, len(tasks))
    except STOPS:
        raise
    except NoCompilerError as error:
        raise PoolError(str(error)) from error
    except BaseException as error:  # noqa: BLE001  # A user's code raises anything.
        if len(tasks) > 1:
            one_by_one = (_trained(workload, [task], setting, executors, context, at_step) for task in tasks)
            return {place: end for ended in one_by_one for place, end in ended.items()}
        return {(tasks[0].trial, tasks[0].replicate): (failed_rows(workload, tasks, text_of(error), context), None)}
    places = [(task.trial, task.replicate) for task in tasks]
    return {
        place: (rows[place], {name: value[lane] for name, value in state.items()}) for lane, place in enumerate(places)
    }


def _state(pack: Pack[Any], n_lanes: int) -> State:
    _, state = pack.final_state(np.arange(n_lanes))
    return {name: value.cpu() for name, value in state.items()}


def setting_of(directory: SweepDirectory, row: Mapping[str, Any], task: Task) -> Setting:
    """On this machine."""
    device = "cuda" if row["device"] == "cuda" and torch.cuda.is_available() else "cpu"
    engine = directory.environment_of(row["environment"]).engine
    try:
        versions(engine)
    except UserError:
        engine = "eager"  # the recorded one does not run on this machine
    return Setting(task.shape, device, engine, width_on(device, row["pack_size"] or 1))


def notes_on(directory: SweepDirectory, row: Mapping[str, Any], here: Setting, every: int) -> tuple[str, ...]:
    """Why last digits may differ here from the recorded ones; the ledger keeps one in `every` of the probes."""
    notes = []
    if every > 1:
        notes.append(f"curves were thinned to one probe in {every}, with the first and the last: these are compared")
    if row["device"] not in (here.device, None):
        notes.append(f"recorded on {row['device']}, replayed on {here.device}: the last digits differ")
    recorded_in = directory.environment_of(row["environment"])
    if (engine := recorded_in.engine) != here.engine:
        notes.append(f"recorded in {engine}, which this machine cannot compile, replayed in {here.engine}")
    machine = row["accelerator"] or recorded_in.machine
    if row["device"] == here.device and machine not in (None, now := machine_of(here.device)):
        (kind, _, then), (own, _, level) = machine.partition(", "), now.partition(", ")
        is_older = kind == own and (then, level) == ("AVX2", "AVX512")
        hint = "; ATEN_CPU_CAPABILITY=avx2 takes the kernels of that one" if is_older else ""
        notes.append(f"recorded on {machine}, replayed on {now}: the last digits may differ{hint}")
    at_start = directory.provenance.get("versions", {})
    then, now = (recorded_in.versions or at_start).get("torch"), str(torch.__version__)
    if then and then.partition("+")[0] != now.partition("+")[0]:
        notes.append(f"recorded with PyTorch {then}, replayed with {now}: the last digits may differ")
    return tuple(notes)
