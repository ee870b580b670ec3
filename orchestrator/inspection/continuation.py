"""Continues a recorded training from a step many times, with other random numbers or a small change of weights.

All continuations share the training's state at the step: parameters, buffers, the optimizer's averages, records, the
task and the held-out data. They differ in the random numbers drawn after the step, or in the kick (noise added once to
the parameters). Continuation 0 is the training itself, which must end as recorded.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import Record
from attnsweep.orchestrator.inspection.deviation import deviation
from attnsweep.orchestrator.inspection.recorded import recorded_training
from attnsweep.orchestrator.inspection.retraining import Setting, notes_on, setting_of
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import Rows
from attnsweep.orchestrator.training.rows import PackContext, curve_rows, head_rows, joined, trained_rows
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.orchestrator.training.trainer import STOPS, text_of
from attnsweep.workloads.diagnostics.escape import predicted_escapes
from attnsweep.workloads.diagnostics.kicks import kick
from attnsweep.workloads.engine.checkpoint import Checkpoint
from attnsweep.workloads.engine.compiling import executors_on
from attnsweep.workloads.engine.continued import Redraw, drawn_for_evaluation
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.engine.executors import Executors, NoCompilerError
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.lane_store import LaneStore
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.probing import probe_steps_of
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.engine.streams import Streams, generator_seed
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.update_rules import UPDATE_RULES
from attnsweep.workloads.vocabulary import Outcome

Change: TypeAlias = Literal["data", "noise", "kick"]

DRAWS: Mapping[Change, str] = {"data": "other data", "noise": "other dropout masks", "kick": "a kick"}
"""What differs in continuations, in words."""
_AT_ONCE = 512
"""The most continuations in one pack on a CPU. On a GPU, packs have the size of the pack that trained the row."""


@dataclass(frozen=True, kw_only=True)
class Continued:
    """Continuations of one training from one step, as rows of the ledger.

    Attributes:
        rows: The continuations' rows as in a ledger; `replicate` is the number of the continuation.
        difference: How the end of continuation 0, which is the training itself, differs from the recorded end; empty if
            it does not.
    """

    rows: Rows
    difference: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin(Record):
    """The recorded training that is continued, and how it ended."""

    sweep: str
    training_id: str
    trial: int
    replicate: int
    recorded: str
    n_steps: int

    @property
    def name(self) -> str:
        """TRIAL/REPLICATE."""
        return f"{self.trial}/{self.replicate}"

    def __str__(self) -> str:
        place = f"trial {self.trial}, replicate {self.replicate} of {self.sweep}"
        return f"{self.training_id}: {place}, {self.recorded} at step {self.n_steps}"


class Source:
    """A recorded training that can be continued from any of its steps.

    `name` is as `find_training` accepts it.

    Attributes:
        size: The size of a kick, relative to the root mean square of each parameter tensor.
        notes: Reasons why its last digits may differ here from those recorded.

    Raises:
        UserError: If there is no such training, it failed, its optimizer searches along lines, or the change would
            change nothing.
    """

    def __init__(self, directory: SweepDirectory, name: str, change: Change, size: float) -> None:
        self._workload: Workload[Any] = load_workload_of(directory)
        ledger = Ledger(directory.place)
        self.row, self._recorded, self._task = recorded_training(ledger, self._workload, name)
        self._training = self._task.training
        self.change: Change = change
        self.size = size
        names = ("sweep", "training_id", "trial", "replicate", "n_steps")
        self.origin = Origin(**{name: self.row[name] for name in names}, recorded=self.row["outcome"])
        self._check()
        self._setting: Setting = setting_of(directory, self.row, self._task)
        self._every = ledger.curves_every()
        self.notes = notes_on(directory, self.row, self._setting, self._every)
        self._programs: Executors | None = executors_on(self._setting.device, self._setting.engine)

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """Those that the workload declares itself."""
        return self._workload.outcomes

    @property
    def probe_steps(self) -> Sequence[int]:
        """From 0 to the training's end."""
        steps = probe_steps_of(self._workload, self._training.parameters)
        return [step for step in steps if step <= self.origin.n_steps]

    def seconds(self, step: int, n: int) -> float:
        """An estimate for n continuations, from the time that the training took in its sweep."""
        n_steps = self.origin.n_steps
        return float(self.row["train_seconds"] or 0.0) * (n * (n_steps - step) + step) / max(n_steps, 1)

    def states(self, steps: Sequence[int]) -> dict[int, Checkpoint]:
        """Trains the training once more; returns its checkpoint at each step.

        Raises:
            UserError: If a step is at or beyond the training's end, or if no random numbers are drawn after it.
        """
        for step in steps:
            self._check_step(step)
        with self._trained_again():
            pack = Pack(
                self._workload, [self._training], self._setting.device, steps, self._programs, width=self._setting.width
            )
            checkpoints = {}
            for step in sorted(steps):
                while step not in checkpoints:
                    pack.advance(self.origin.n_steps + 1, 1)
                    if pack.step == step:
                        checkpoints[step] = pack.checkpoint()
        return checkpoints

    def continued(self, states: Mapping[int, Checkpoint], step: int, numbers: range) -> Continued:
        """Continues a training from a step of `states` to its end, for each of `numbers`; 0 is the training itself."""
        at_once = self._setting.width or _AT_ONCE
        parts = [numbers[first : first + at_once] for first in range(0, len(numbers), at_once)]
        with self._trained_again():
            packs = [self._pack(states, step, part) for part in parts]
        rows = joined(packs)
        return Continued(rows=rows, difference=self._difference(packs[0]) if 0 in numbers else "")

    def weights(self, states: Mapping[int, Checkpoint], step: int) -> State:
        """The parameters by name, on the CPU."""
        pack = self._begun(states, step, range(1))
        return {name: value[0].cpu() for name, value in pack.parameters.items()}

    @contextmanager
    def _trained_again(self) -> Iterator[None]:
        try:
            with training_settings():
                yield
        except NoCompilerError as error:
            raise PoolError(str(error)) from error
        except (*STOPS, UserError):
            raise
        except Exception as error:
            given = f"a training that fails when it is repeated: {text_of(error).rstrip().rpartition(chr(10))[2]}"
            expected = "a training that can be repeated"
            fix = "correct the cause of the error, or choose another training"
            raise UserError(self.origin.name, given=given, expected=expected, fix=fix) from error

    def _check(self) -> None:
        if self.row["outcome"] == "failed":
            expected = "a training that did not fail"
            fix = 'see: attnsweep query DIR "select training_id, outcome from trainings"'
            raise UserError("TRAINING_ID", given=f"{self.origin.name}, which failed", expected=expected, fix=fix)
        if self._training.parameters.optimizer == "lbfgs":
            expected = f"one of {', '.join(UPDATE_RULES)}: the line searches of lbfgs need a loss that never changes"
            fix = "run the sweep with another optimizer, such as adam"
            raise UserError("TRAINING_ID", given=f"{self.origin.name}, trained with lbfgs", expected=expected, fix=fix)

    def _check_step(self, step: int) -> None:
        name, n_steps = self.origin.name, self.origin.n_steps
        if not 0 <= step < n_steps:
            expected = f"a step from 0 to {n_steps - 1}: {name} ended at step {n_steps} ({self.origin.recorded})"
            raise UserError("--at", given=step, expected=expected, fix="choose a step before the training's end")
        if self.change != "kick" and not self._draws_anew(step):
            missing = {
                "data": "its loss is exact, or takes all data",
                "noise": "it draws no more dropout masks",
            }
            expected = f"random numbers that {name} still draws after this step: {missing[self.change]}"
            fix = f"write {'' if self.change == 'data' else '--redraw data, or '}--redraw kick (noise in the weights)"
            raise UserError("--redraw", given=f"{self.change} at step {step}", expected=expected, fix=fix)

    def _draws_anew(self, step: int) -> bool:
        redraw, n_steps = self._redraw(step, [1]), self._training.parameters.n_steps
        store = LaneStore(self._workload, [self._training], "cpu", None, None, redraw)
        # In the middle of a pass over the data, a batch may draw no random numbers, because the order of the data was
        # drawn at the beginning of the pass. Therefore the last batch of the training is tried too: it may belong to a
        # later pass, whose order is still to be drawn.
        for batch_step in (step, n_steps - 1):
            store.batch_at(batch_step)
        return bool(redraw.found)

    def _redraw(self, step: int, numbers: Sequence[int]) -> Redraw:
        own = self._training.seed
        seeds = [own if number == 0 or self.change == "kick" else _seed(own, number) for number in numbers]
        kept = drawn_for_evaluation(self._workload, self._training) if step == 0 else frozenset[str]()
        return Redraw("noise" if self.change == "noise" else "data", seeds, step, kept)

    def _pack(self, states: Mapping[int, Checkpoint], step: int, numbers: range) -> Rows:
        pack = self._begun(states, step, numbers)
        escapes = self._kicked(pack, step, numbers) if self.change == "kick" else None
        result = pack.train_to_end().at(probe_steps_of(self._workload, self._training.parameters))
        tasks = [Task(self._task.trial, number, self._training) for number in numbers]
        verdicts = judged(self._workload, self._training.parameters, result.evidence)
        context = PackContext(self.origin.sweep, "fork", self._setting.device, platform.node())
        return Rows(
            trained_rows(self._workload, tasks, result, verdicts, [None] * len(tasks), context, escapes),
            curve_rows(self._workload, tasks, result),
            head_rows(self._workload, tasks, result),
        )

    def _begun(self, states: Mapping[int, Checkpoint], step: int, numbers: range) -> Pack[Any]:
        return Pack.continued(
            self._workload,
            self._training,
            states[step],
            self._redraw(step, numbers),
            self._setting.device,
            sorted(states),
            self._programs,
            self._setting.width,
        )

    def _kicked(self, pack: Pack[Any], step: int, numbers: range) -> NDArray[np.float64]:
        """Kicks all continuations but number 0, the training itself."""
        seeds = torch.tensor([_seed(self._training.seed, number) for number in numbers], device=self._setting.device)
        is_kicked = np.flatnonzero(np.array(numbers))
        for name, value in kick(pack.parameters, Streams(seeds), self.size).items():
            pack.parameters[name][is_kicked] = value[is_kicked]
        kicked = {name: value[: len(numbers)] for name, value in pack.parameters.items()}
        return step + predicted_escapes(self._workload, [self._training] * len(numbers), weights=kicked)

    def _difference(self, first: Rows) -> str:
        if self.row["pruned_step"] is not None:
            return ""
        own = Rows(first.trainings.slice(0, 1), first.curves.filter(pc.field("replicate") == 0), None)
        recorded = Rows(self._recorded.trainings, self._recorded.curves, None)
        distance = deviation(recorded, own, thinned=self._every > 1)
        return "" if distance.agrees else f"ends otherwise than recorded, in {', '.join(distance.disagreements)}"


def _seed(of_training: int, number: int) -> int:
    return generator_seed(of_training, f"fork/{number}")
