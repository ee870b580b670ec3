"""Continues a recorded training from a step many times, with other random numbers or a small change of weights, and
counts how it ends: the chance of each outcome given the training's state there (the committor).

All continuations share this state (parameters, buffers, the optimizer's averages, records), the task and the held-out
data. They differ in the random numbers drawn after the step, or in the kick: noise added once to the parameters.
Continuation 0 is the training itself, which must end as recorded.
"""

import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import Rate, binomial_rate, share_label
from attnsweep.orchestrator.analysis.tables import show, to_json
from attnsweep.orchestrator.inspection.deviation import deviation
from attnsweep.orchestrator.inspection.recorded import recorded_training
from attnsweep.orchestrator.inspection.retraining import notes_on, setting_of, unrepeatable
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
from attnsweep.workloads.engine.executors import NoCompilerError
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.lane_store import LaneStore
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.probing import probe_steps_of
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.engine.streams import Streams, generator_seed
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.update_rules import UPDATE_RULES

Change: TypeAlias = Literal["data", "noise", "kick"]

_DRAWS: Mapping[Change, str] = {"data": "other data", "noise": "other dropout masks", "kick": "a kick"}
_MAX_LANES = 512
"""On a CPU. On a GPU, packs are as large as the one that trained the row."""


@dataclass(frozen=True, kw_only=True)
class Fork:
    """How continuations of one training from a step ended.

    Attributes:
        origin: The recorded training's row of `trainings`.
        size: Of the kick, relative to the root mean square of each parameter tensor; `None` without a kick.
        shares: Of each outcome, with Wilson's 95% interval; the most frequent first.
        difference: How the training itself, continued with its own draws, ends otherwise than recorded; else empty.
        notes: Why its last digits may differ on this machine from those recorded.
        trainings: The continuations as rows of a ledger's `trainings`. `replicate` is the continuation's number, from
            1; `predicted_escape_step` is predicted from the kicked weights, null without a kick or a formula.
        curves: Of the same, as rows of `curves`.
    """

    origin: Mapping[str, Any]
    step: int
    redraw: Change
    size: float | None
    n: int
    shares: Mapping[str, Rate]
    difference: str
    notes: tuple[str, ...]
    trainings: pa.Table = field(compare=False, repr=False)
    curves: pa.Table = field(compare=False, repr=False)

    def rate(self, outcome: str) -> Rate:
        return self.shares.get(outcome) or binomial_rate(0, self.n)

    def print(self, console: Console) -> None:
        row = self.origin
        place = f"{row['training_id']}: trial {row['trial']}, replicate {row['replicate']} of {row['sweep']}"
        draws = f"{self.n} continuations from step {self.step} with {_DRAWS[self.redraw]}"
        for line in (f"{place}, {row['outcome']} at step {row['n_steps']}; {draws}", *self.notes):
            console.print(line, soft_wrap=True, markup=False)
        rows = [(outcome, f"{rate.k} of {rate.n}", share_label(rate)) for outcome, rate in self.shares.items()]
        show(pa.table([*zip(*rows, strict=True)], names=["outcome", "of", "share (95% interval)"]), console)
        if self.difference:
            console.print(f"continued with its own draws it {self.difference}", soft_wrap=True, markup=False)

    def to_json(self) -> str:
        """One line."""
        names = ("sweep", "training_id", "trial", "replicate", "n_steps")
        return to_json(
            {name: self.origin[name] for name in names}
            | {"recorded": self.origin["outcome"], "step": self.step, "redraw": self.redraw, "size": self.size}
            | {"n": self.n, "shares": self.shares, "difference": self.difference, "notes": self.notes}
        )


def fork(
    directory: SweepDirectory,
    name: str,
    *,
    step: int,
    redraw: Change = "data",
    n: int = 256,
    size: float = 0.01,
    say: Callable[[str], None] = lambda _: None,
) -> Fork:
    """As `OpenedSweep.fork`. `say` gets a line with an estimate of the time."""
    if n < 1:
        raise UserError("--n", given=n, expected="a number of continuations from 1 on", fix="write for example --n 256")
    if not 0 < size < float("inf"):
        raise UserError("--size", given=size, expected="a size above 0", fix="write for example --size 0.01")
    source = Source(directory, name, redraw, size)
    row, state = source.row, source.state(step)
    n_left = row["n_steps"] - step
    seconds = (row["train_seconds"] or 0.0) * (n * n_left + step) / max(row["n_steps"], 1)
    say(f"{n} continuations of {n_left:,} steps: about {seconds:.1f} s ...")
    rows = source.continued(state, step, range(n + 1))
    others = pc.field("replicate") > 0
    trainings = rows.trainings.filter(others)
    counts = Counter(trainings["outcome"].to_pylist())
    return Fork(
        origin=row,
        step=step,
        redraw=redraw,
        size=size if redraw == "kick" else None,
        n=n,
        shares={outcome: binomial_rate(k, n) for outcome, k in counts.most_common()},
        difference=source.difference(rows),
        notes=source.notes,
        trainings=trainings,
        curves=rows.curves.filter(others),
    )


class Source:
    """A recorded training that can be continued from any of its steps."""

    def __init__(self, directory: SweepDirectory, name: str, change: Change, size: float) -> None:
        self._workload = load_workload_of(directory)
        ledger = Ledger(directory.place)
        self.row, self._recorded, self._task = recorded_training(ledger, self._workload, name)
        self._name = f"{self.row['trial']}/{self.row['replicate']}"
        self._training = self._task.training
        self._change, self._size = change, size
        self._check()
        self._setting = setting_of(directory, self.row, self._task)
        self._every = ledger.curves_every()
        self.notes = notes_on(directory, self.row, self._setting, self._every)
        self._executors = executors_on(self._setting.device, self._setting.engine)

    def state(self, step: int) -> Checkpoint:
        """Trains the training once more, up to the step."""
        self._check_step(step)
        setting = self._setting
        with self._trained_again():
            pack = Pack(self._workload, [self._training], setting.device, [step], self._executors, width=setting.width)
            pack.advance(step + 1, 1)
            while pack.step < step:
                pack.advance(step + 1, 1)
        return pack.checkpoint()

    def continued(self, state: Checkpoint, step: int, numbers: range) -> Rows:
        """A row of `trainings` for each number, its `replicate`; number 0 is the training itself."""
        n_lanes = self._setting.width or _MAX_LANES
        parts = [numbers[first : first + n_lanes] for first in range(0, len(numbers), n_lanes)]
        with self._trained_again():
            return joined([self._pack(state, step, part) for part in parts])

    def difference(self, rows: Rows) -> str:
        """How continuation 0 ends otherwise than recorded; empty if it does not."""
        if self.row["pruned_step"] is not None:
            return ""
        is_own = pc.field("replicate") == 0
        own = Rows(rows.trainings.filter(is_own), rows.curves.filter(is_own), None)
        recorded = Rows(self._recorded.trainings, self._recorded.curves, None)
        distance = deviation(recorded, own, thinned=self._every > 1)
        return "" if distance.agrees else f"ends otherwise than recorded, in {', '.join(distance.disagreements)}"

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
            raise unrepeatable(self._name, text_of(error)) from error

    def _check(self) -> None:
        if self.row["outcome"] == "failed":
            expected = "a training that did not fail"
            fix = 'see: attnsweep query DIR "select training_id, outcome from trainings"'
            raise UserError("TRAINING_ID", given=f"{self._name}, which failed", expected=expected, fix=fix)
        if self._training.parameters.optimizer == "lbfgs":
            expected = f"one of {', '.join(UPDATE_RULES)}: the line searches of lbfgs need a loss that never changes"
            fix = "run the sweep with another optimizer, such as adam"
            raise UserError("TRAINING_ID", given=f"{self._name}, trained with lbfgs", expected=expected, fix=fix)

    def _check_step(self, step: int) -> None:
        name, n_steps = self._name, self.row["n_steps"]
        if not 0 <= step < n_steps:
            expected = f"a step from 0 to {n_steps - 1}: {name} ended at step {n_steps} ({self.row['outcome']})"
            raise UserError("--at", given=step, expected=expected, fix="choose a step before the training's end")
        if self._change != "kick" and not self._draws_anew(step):
            missing = {
                "data": "its loss is exact, or takes all data",
                "noise": "it draws no more dropout masks",
            }
            expected = f"random numbers that {name} still draws after this step: {missing[self._change]}"
            fix = f"write {'' if self._change == 'data' else '--redraw data, or '}--redraw kick"
            raise UserError("--redraw", given=f"{self._change} at step {step}", expected=expected, fix=fix)

    def _draws_anew(self, step: int) -> bool:
        redraw, n_steps = self._redraw(step, [1]), self._training.parameters.n_steps
        store = LaneStore(self._workload, [self._training], "cpu", None, None, redraw)
        # At this step, or at the last: within a pass over the data nothing is drawn, but a later pass has a new order.
        for batch_step in (step, n_steps - 1):
            store.batch_at(batch_step)
        return bool(redraw.found)

    def _redraw(self, step: int, numbers: Sequence[int]) -> Redraw:
        seed = self._training.seed
        seeds = [seed if number == 0 or self._change == "kick" else _seed(seed, number) for number in numbers]
        kept = drawn_for_evaluation(self._workload, self._training) if step == 0 else frozenset[str]()
        return Redraw("noise" if self._change == "noise" else "data", seeds, step, kept)

    def _pack(self, state: Checkpoint, step: int, numbers: range) -> Rows:
        pack = Pack.continued(
            self._workload,
            self._training,
            state,
            self._redraw(step, numbers),
            self._setting.device,
            [step],
            self._executors,
            self._setting.width,
        )
        escapes = self._kicked(pack, step, numbers) if self._change == "kick" else None
        result = pack.train_to_end().at(probe_steps_of(self._workload, self._training.parameters))
        tasks = [Task(self._task.trial, number, self._training) for number in numbers]
        verdicts = judged(self._workload, self._training.parameters, result.evidence)
        context = PackContext(self.row["sweep"], "fork", self._setting.device, platform.node())
        return Rows(
            trained_rows(self._workload, tasks, result, verdicts, [None] * len(tasks), context, escapes),
            curve_rows(self._workload, tasks, result),
            head_rows(self._workload, tasks, result),
        )

    def _kicked(self, pack: Pack[Any], step: int, numbers: range) -> NDArray[np.float64]:
        """Kicks all continuations but number 0, the training itself."""
        seeds = torch.tensor([_seed(self._training.seed, number) for number in numbers], device=self._setting.device)
        is_kicked = np.flatnonzero(np.array(numbers))
        for name, value in kick(pack.parameters, Streams(seeds), self._size).items():
            pack.parameters[name][is_kicked] = value[is_kicked]
        kicked = {name: value[: len(numbers)] for name, value in pack.parameters.items()}
        return step + predicted_escapes(self._workload, [self._training] * len(numbers), weights=kicked)


def _seed(of_training: int, number: int) -> int:
    return generator_seed(of_training, f"fork/{number}")
