"""A pack: many trainings of one workload in one batched program.

Axes: L lane (all trainings of the pack), A active lane (those not yet ended), P probe. With a fixed width the
tensors (A, ...) have W lanes: after the active ones copies (`width`).
"""

import time
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.engine.block_step import StepGraph
from attnsweep.workloads.engine.blocks import Problem, StepProgram, StepPrograms, shapes_of
from attnsweep.workloads.engine.checkpoint import Checkpoint, CheckpointError, fingerprint
from attnsweep.workloads.engine.chosen_optimizer import optimizer_of
from attnsweep.workloads.engine.conserved import ConservedQuantities
from attnsweep.workloads.engine.constants import digest_of
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes, P, Training, Workload
from attnsweep.workloads.engine.even_rows import even_rows
from attnsweep.workloads.engine.examination import DESCENDED, examined
from attnsweep.workloads.engine.first_order import FirstOrder, norm_per_lane
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.gradients import GradientGraph, GradientProgram
from attnsweep.workloads.engine.judging import judged, least_losses
from attnsweep.workloads.engine.layout import ROWS, Layout, prefixed, selected, under
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.precision import in_type, is_rounded, measurable
from attnsweep.workloads.engine.readings import descent, numbers_of, to_numpy
from attnsweep.workloads.engine.record import Record
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.engine.starting_state import starting_state
from attnsweep.workloads.engine.traces import NoRuleError, count_numbers
from attnsweep.workloads.engine.width import filled_up

Array = TypeVar("Array", Tensor, NDArray[Any])

_PROBES_AHEAD = 2
"""How many probes a lane may run ahead of the slowest one. For 50 steps of L-BFGS 64 lanes need 121 evaluations if they
wait at every probe, 82 with one ahead, 73 with two, the slowest alone 62. A solved lane has computed some in vain."""


class Pack(Generic[P]):
    """Runs trainings with equal static parameters together, each as if it were alone.

    A training ends at its last step, at the first probe that finds it solved (`stop_when_solved`), where its loss
    turns non-finite, at the first probe with a negative loss if that is impossible (`loss_may_be_negative`), or where
    its optimizer's own tolerances end it. An ended lane is measured at the next probe and then leaves the batch, so it
    costs nothing more.

    Args:
        workload: The problem.
        trainings: One per lane.
        device: The device to train on, such as `cpu` or `cuda`.
        extra_probe_steps: Steps to measure at besides the workload's probes. They change no bit of the trainings,
            which end at the workload's probes only.
        programs: Compiled steps, for the block engine, or graphs; `None` for the vmapped engine.
        start: Parameters and buffers (L, ...) by name that replace those that the workload draws, in any
            floating-point type: such as where other trainings ended.
        width: W, the lanes computed until all trainings have ended; `None` for the active ones alone.
        prune_at: (L,) the probe at which each training is pruned, where that is known already; `None` for the others.
    """

    def __init__(
        self,
        workload: Workload[P],
        trainings: Sequence[Training[P]],
        device: str = "cpu",
        extra_probe_steps: Sequence[int] = (),
        programs: StepPrograms | None = None,
        start: State | None = None,
        width: int | None = None,
        prune_at: Sequence[int | None] | None = None,
    ) -> None:
        self._workload, self._width = workload, width
        self._all = Lanes(trainings, torch.device(device))
        self._position = np.arange(len(trainings))
        self._lanes = self._all.select(self._filled_up(self._position)) if width else self._all
        parameters, self._buffers, template = starting_state(workload, self._lanes, start)
        self._programs = None if is_rounded(self._lanes) else programs
        self._known: dict[Hashable, StepProgram | None] = {}
        self._conserved = ConservedQuantities(workload, self._all, measurable(self._active(parameters)))
        self._layout = Layout(parameters)
        # Its constants are read before it computes anything: a module may keep what it computed last.
        self._problem = Problem(workload, template, self._layout, self._lanes.shared, digest_of(template))
        self._rows = self._layout.rows(parameters)
        self._optimizer = optimizer_of(self._lanes)
        self._optimizer.keeps_width = width is not None
        self._loss = over_lanes(template, workload.loss)
        self._examine = over_lanes(template, partial(examined, workload))
        self._eval_batch = workload.eval_batch(self._lanes)
        levels = over_lanes(template, workload.levels)
        found = to_numpy(levels(*map(measurable, (self._parameters, self._buffers, self._eval_batch))))
        self._least_loss = self._on_device(least_losses(workload, found))
        self._all_buffers, self._final_rows = self._buffers, torch.empty_like(self._rows[: len(trainings)])

        own_steps = workload.probe_steps(self._lanes.shared)
        self._probe_steps = sorted({*own_steps, *extra_probe_steps})
        self._own_probes = np.searchsorted(self._probe_steps, own_steps)
        self._record = Record(self._probe_steps, self._active(found), prune_at or [None] * len(trainings))
        self._next_probe, self._n_evaluations = 0, 0
        self._drawn: list[Batch] = []
        self._first_drawn, self._drawn_for = 0, self._position

    @classmethod
    def resumed(
        cls,
        workload: Workload[P],
        trainings: Sequence[Training[P]],
        checkpoint: Checkpoint,
        device: str = "cpu",
        programs: StepPrograms | None = None,
        width: int | None = None,
        prune_at: Sequence[int | None] | None = None,
    ) -> Self:
        """The pack that `checkpoint` was taken of. On the same kind of device its results are the same to the last bit.

        Raises:
            CheckpointError: If the checkpoint is of other trainings.
        """
        pack = cls(workload, trainings, device, programs=programs, width=width, prune_at=prune_at)
        if str(checkpoint["fingerprint"]) != pack._fingerprint():
            raise CheckpointError(f"{workload.name}: the checkpoint is of other trainings, or of another version")
        pack._restore(checkpoint)
        return pack

    @property
    def _parameters(self) -> State:
        return self._layout.views(self._rows)

    @property
    def done(self) -> bool:
        """Whether all trainings have ended."""
        return self._position.size == 0

    @property
    def step(self) -> int:
        """The step of the last probe: all active trainings have reached it."""
        return self._probe_steps[max(self._next_probe - 1, 0)]

    @property
    def running(self) -> list[int]:
        """The positions in the pack of the trainings that have not ended."""
        return list(map(int, self._position))

    @property
    def _at_own_probe(self) -> bool:
        return self._next_probe in self._own_probes

    def advance(self, n_evaluations: int, n_probes: int | None = None) -> bool:
        """Trains on for at most so many evaluations and probes of the pack; True when all trainings have ended.

        An evaluation is a step, except for optimizers that search along lines. By default probes are not limited.
        """
        stop_at = self._n_evaluations + n_evaluations
        last_probe = None if n_probes is None else self._next_probe + n_probes
        while not self.done:
            started = time.perf_counter()
            evaluations_left = stop_at - self._n_evaluations
            at_probe = self._train(evaluations_left)
            if at_probe:
                with even_rows(self._all.device):
                    self._record_probe()
            self._record.seconds[self._position] += (time.perf_counter() - started) / self._position.size
            if not at_probe:
                return False
            if self._at_own_probe:
                self._drop_ended()
            self._next_probe += 1
            if self._next_probe == last_probe:
                return self.done
        return True

    def prune(self, positions: Sequence[int]) -> None:
        """Ends the trainings at these positions at the probe just recorded: no step may have been taken since."""
        self._record.prune(np.asarray(positions, dtype=np.int64), self.step)
        self._drop(np.isin(self._position, positions))

    def result(self) -> PackResult:
        """The measurements so far; of trainings that have not ended, up to the last probe."""
        return self._record.result()

    def final_state(self, positions: NDArray[np.int64]) -> tuple[Lanes[P], State]:
        """The trainings at these positions in the pack, (K,), and their parameters and buffers now or at their end."""
        lanes = torch.from_numpy(positions).to(self._all.device)
        return self._all.select(lanes), selected(self._layout.views(self._all_rows()) | self._all_buffers, lanes)

    def _all_rows(self) -> Tensor:
        positions = self._on_device(self._position)
        return self._final_rows.index_copy(0, positions, self._rows[: self._position.size])

    def checkpoint(self) -> Checkpoint:
        """All state that training has changed, for `resumed`; state that follows from the trainings is left out."""
        tensors = {"rows": self._all_rows(), **prefixed("optimizer", self._optimizer.state_dict())}
        return {
            "fingerprint": np.array(self._fingerprint()),
            "position": self._position,
            "drawn_for": self._drawn_for,
            "first_drawn": np.array(self._first_drawn),
            "next_probe": np.array(self._next_probe),
            **{name: array.copy() for name, array in prefixed("record", self._record.arrays()).items()},
            **{name: tensor.numpy(force=True).copy() for name, tensor in measurable(tensors).items()},
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        # For the lanes that were active when the batches were drawn: drawn for others, they might round differently.
        self._keep(checkpoint["drawn_for"])
        self._batch_at(int(checkpoint["first_drawn"]))
        self._keep(checkpoint["position"])
        self._final_rows = self._on_device(checkpoint["rows"]).to(self._lanes.dtype)
        self._rows = self._final_rows[self._filled_up(self._position)]
        state = {name: self._on_device(array) for name, array in under("optimizer", checkpoint).items()}
        if self._lanes.dtype == torch.bfloat16:
            state = in_type(state, torch.bfloat16)
        self._optimizer.load_state_dict(state)
        self._next_probe = int(checkpoint["next_probe"])
        self._record.restore(under("record", checkpoint), self.step)
        self._drop(self._record.is_pruned(self._position, self.step))

    def _fingerprint(self) -> str:
        return fingerprint(self._workload.name, self._all.trainings, self._probe_steps, self._final_rows.shape[1])

    def _on_device(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self._all.device)

    def _filled_up(self, lanes: NDArray[np.int64]) -> Tensor:
        """The lanes (A,), and the copies that keep the pack's width."""
        chosen = self._on_device(lanes)
        return filled_up(chosen, self._width) if self._width and lanes.size else chosen

    def _active(self, by_name: Mapping[str, Array]) -> dict[str, Array]:
        """Of values (W, ...) those of the active lanes, (A, ...)."""
        return {name: value[: self._position.size] for name, value in by_name.items()}

    def _train(self, most_evaluations: int) -> bool:
        """Trains up to the next probe, or for so many evaluations; returns whether the probe was reached."""
        stops, optimizer = self._stops(), self._optimizer
        if self._programs is None or not isinstance(optimizer, FirstOrder):
            return self._train_vmapped(stops, most_evaluations)
        until = min(stops[0], optimizer.n_updates + most_evaluations)
        while optimizer.n_updates < until:
            program, start = self._block_program(self._programs, optimizer), optimizer.n_updates
            if program is None:
                return self._train_vmapped(stops, until - start)
            program.advance(optimizer, self._rows, self._buffers, self._batches, until)
            self._n_evaluations += optimizer.n_updates - start
        return until == stops[0]

    def _train_vmapped(self, stops: Sequence[int], most_evaluations: int) -> bool:
        with even_rows(self._all.device):
            return self._optimizer.advance({ROWS: self._rows}, self._evaluate, stops, most_evaluations)

    def _block_program(self, programs: StepPrograms, optimizer: FirstOrder) -> StepProgram | None:
        """The program that takes the next step; `None` if the engine of this shape is the vmapped one."""
        batch = self._batch_at(optimizer.n_updates)
        shapes = shapes_of(batch)
        if shapes not in self._known:
            self._known[shapes] = programs.of(self._problem, optimizer, self._rows, self._buffers, batch)
        return self._known[shapes]

    def _gradient_program(self, batch: Batch) -> GradientProgram | None:
        """The program of the loss and its gradient; `None` if they are vmapped."""
        if self._programs is None:
            return None
        return self._programs.gradient_of(self._problem, self._rows, self._buffers, batch)

    def compile(self) -> None:
        """Compiles what the first step needs, unless this machine has it or the shape has no program.

        Raises:
            NoCompilerError: If this machine cannot compile it.
        """
        optimizer, programs = self._optimizer, self._programs
        if programs is not None and isinstance(optimizer, FirstOrder) and self._block_program(programs, optimizer):
            return
        self._gradient_program(self._batch_at(0))

    def count_numbers(self) -> int:
        """How many numbers an evaluation computes for each training, counted while the first one is taken."""
        # A single lane is computed twice.
        return count_numbers(lambda: self._train_vmapped([1], 1)) // max(self._rows.shape[0], 2)

    def compiled_graph(self) -> StepGraph | GradientGraph:
        """What the engine of blocks compiles for these trainings: their step, or else their loss and its gradient.

        Raises:
            NoRuleError: If it compiles neither; it says why.
        """
        if is_rounded(self._lanes):
            raise NoRuleError("bfloat16 is not compiled")
        return self._problem.compiled_graph(self._optimizer, self._rows, self._buffers, self._batch_at(0))

    def step_graph(self) -> StepGraph:
        """See `Problem.step_graph`."""
        return self._problem.step_graph(self._optimizer, self._rows, self._buffers, self._batch_at(0))

    def _batches(self, start: int, until: int) -> list[Batch]:
        """The batches of the steps from `start` to before `until`, or of the first of them."""
        batch = self._batch_at(start)
        if not batch:
            return [batch] * (until - start)
        return self._drawn[start - self._first_drawn :][: until - start]

    def _evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        """The training loss and its gradients; see `Evaluate`."""
        self._n_evaluations += 1
        buffers, batch = self._buffers, self._batch_at(step)
        program = self._gradient_program(batch)
        if program is not None:
            loss, gradient = program.descent(parameters[ROWS], buffers, batch, lanes)
            return loss, {ROWS: gradient}
        if lanes is not None:
            buffers, batch = selected(buffers, lanes), selected(batch, lanes)
        leaf, dtype = parameters[ROWS].detach().requires_grad_(), self._lanes.loss_dtype
        of_loss = self._layout.views(leaf.to(dtype)), in_type(buffers, dtype), in_type(batch, dtype)
        loss, gradient = descent("loss", self._loss(*of_loss), leaf)
        return loss.to(leaf.dtype), {ROWS: gradient}

    def _batch_at(self, step: int) -> Batch:
        # Kept, because some optimizers ask for the same batch at every step.
        if not self._first_drawn <= step < self._first_drawn + len(self._drawn):
            self._first_drawn, self._drawn_for = step, self._position
            self._drawn = self._workload.batches(self._lanes, range(step, self._lanes.shared.n_steps + 1))
        return self._drawn[step - self._first_drawn]

    def _stops(self) -> Sequence[int]:
        """The steps of the next probe and of those after it that a lane may run ahead to."""
        ahead = self._own_probes[self._own_probes >= self._next_probe][: 1 + _PROBES_AHEAD]
        return self._probe_steps[self._next_probe : ahead[-1] + 1]

    def _record_probe(self) -> None:
        probe, position = self._next_probe, self._position
        self._record.add_metrics(probe, position, self._active(self._probe()))
        heads = self._workload.score_heads(self._lanes, measurable(self._parameters | self._buffers))
        if heads is not None:
            heads = HeadScores(scores=self._active(heads.scores), role=heads.role[: position.size])
            self._record.add_heads(probe, position, heads)
        if self._at_own_probe:
            is_finite, n_steps = self._optimizer.is_finite.cpu().numpy(), self._optimizer.steps.cpu().numpy()
            self._record.add_progress(probe, position, is_finite[: position.size], n_steps[: position.size])

    def _probe(self) -> dict[str, NDArray[np.float64]]:
        fresh = self._workload.fresh_eval_batch(self._lanes, self._probe_steps[self._next_probe])
        descended = measurable(self._optimizer.descended())
        batch = measurable(self._eval_batch | fresh) | prefixed(DESCENDED, descended)
        leaf = measurable({ROWS: self._rows.detach()})[ROWS].requires_grad_()
        eval_loss_A, measures = self._examine(self._layout.views(leaf), measurable(self._buffers), batch)
        eval_loss_A, gradient = descent("eval_loss", eval_loss_A, leaf)
        with torch.no_grad():
            loss_A = descended["train_loss"] if descended else self._train_loss()
            if self._at_own_probe:
                self._optimizer.observe(loss_A.masked_fill(eval_loss_A < self._least_loss, torch.nan))
            norms = {"grad_norm": norm_per_lane({ROWS: gradient}), "param_norm": norm_per_lane({ROWS: leaf})}
            conserved = self._conserved.measured(self._position, self._active(self._layout.views(leaf)))
            return to_numpy({"loss": loss_A, "eval_loss": eval_loss_A, **norms, **conserved, **measures})

    def _train_loss(self) -> Tensor:
        batch = self._batch_at(self._optimizer.batch_step(self._probe_steps[self._next_probe]))
        return numbers_of("loss", self._loss(*map(measurable, (self._parameters, self._buffers, batch))))

    def _drop_ended(self) -> None:
        """Removes from the batch the lanes that ended at the probe just recorded."""
        is_over = self._next_probe == len(self._probe_steps) - 1
        is_running = self._optimizer.is_running.cpu().numpy()[: self._position.size]
        ended = ~is_running | (is_over or self._is_solved())
        self._drop(ended | self._record.is_pruned(self._position, self._probe_steps[self._next_probe]))

    def _drop(self, is_ended: NDArray[np.bool_]) -> None:
        ended = np.flatnonzero(is_ended)
        if ended.size:
            self._final_rows[self._on_device(self._position[ended])] = self._rows[self._on_device(ended)]
            self._keep(np.delete(self._position, ended))

    def _is_solved(self) -> NDArray[np.bool_]:
        if not self._lanes.shared.stop_when_solved:
            return np.zeros(self._position.size, dtype=np.bool_)
        seen = self._own_probes[self._own_probes <= self._next_probe]
        verdicts = judged(self._workload, self._lanes.shared, self._record.evidence(self._position, seen))
        return np.asarray(verdicts.outcome[:, -1] == "solved")

    def _keep(self, position: NDArray[np.int64]) -> None:
        """Keeps only the lanes at these positions in the pack."""
        if position.size == self._position.size:
            return
        lanes = self._filled_up(np.searchsorted(self._position, position))
        self._position, self._rows = position, self._rows[lanes]
        if self.done:
            return
        self._lanes = self._lanes.select(lanes)
        self._buffers = selected(self._buffers, lanes)
        self._least_loss = self._least_loss[lanes]
        self._eval_batch = selected(self._eval_batch, lanes)
        self._drawn = [selected(batch, lanes) for batch in self._drawn]
        self._optimizer.select(lanes)
