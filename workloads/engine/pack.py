"""Trains packs. Axes: A active training (one that has not ended)."""

import time
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Generic, Self

import numpy as np
import torch
from numpy.typing import NDArray

from attnsweep.workloads.conditions import holds
from attnsweep.workloads.engine.checkpoint import Checkpoint, CheckpointError, fingerprint
from attnsweep.workloads.engine.continued import Redraw, repeated
from attnsweep.workloads.engine.contract import Lanes, P, Training, Workload
from attnsweep.workloads.engine.counting import count_numbers
from attnsweep.workloads.engine.executors import Executors, NoRuleError, Steps
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.lane_state import shapes_of
from attnsweep.workloads.engine.lane_store import LaneStore
from attnsweep.workloads.engine.layout import ROWS, prefixed, under
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.probing import Objective, Probing, probe_steps_of
from attnsweep.workloads.engine.result import PackResult, Record

if TYPE_CHECKING:
    from attnsweep.workloads.engine.compiling.tracing import Trace


class Pack(Generic[P]):
    """Trains many trainings with equal static parameters in one program, each as if alone.

    A training ends at its last step, at the first probe that finds it solved (`stop_when_solved`) or where a condition
    holds (`stop_when`), at the step where its loss turns non-finite, at the first probe with a negative loss if the
    workload excludes that (`loss_may_be_negative`), by a tolerance or limit of its optimizer, or pruned. It is measured
    at the next probe and then leaves the batch.

    Args:
        extra_probe_steps: Further probes, at which no training ends and no bit changes.
        programs: What compiles or captures steps; `None` to train operation by operation.
        start: Parameters and buffers, (n_trainings, ...) by name, of any floating-point type, in place of drawn ones.
        width: The number of lanes computed until all have ended, filled up by copies; `None` for active ones alone.
        prune_at: For each training the step of the probe at which to prune it; `None` where none is known.
        redraw: How copies made by `continued` draw other numbers.
    """

    def __init__(
        self,
        workload: Workload[P],
        trainings: Sequence[Training[P]],
        device: str = "cpu",
        extra_probe_steps: Sequence[int] = (),
        programs: Executors | None = None,
        start: State | None = None,
        width: int | None = None,
        prune_at: Sequence[int | None] | None = None,
        redraw: Redraw | None = None,
    ) -> None:
        self._workload = workload
        self._store = LaneStore(workload, trainings, device, start, width, redraw)
        self._programs = None if self._store.lanes.is_rounded else programs
        self._known: dict[Hashable, Steps | None] = {}
        self._objective = Objective(workload, self._store, self._programs)
        self._probing = Probing(workload, self._store, self._objective)
        own_steps = probe_steps_of(workload, self._shared)
        self._probe_steps = sorted({*own_steps, *extra_probe_steps})
        self._own_probes = np.searchsorted(self._probe_steps, own_steps)
        self._record = Record(self._probe_steps, self._probing.levels, prune_at or [None] * len(trainings))
        self._next_probe = 0

    @classmethod
    def resumed(
        cls,
        workload: Workload[P],
        trainings: Sequence[Training[P]],
        checkpoint: Checkpoint,
        device: str = "cpu",
        programs: Executors | None = None,
        width: int | None = None,
        prune_at: Sequence[int | None] | None = None,
    ) -> Self:
        """Restores trainings from their checkpoint; a `CheckpointError` if it belongs to others. On the same kind of
        device, results equal those without an interruption to the last bit."""
        pack = cls(workload, trainings, device, programs=programs, width=width, prune_at=prune_at)
        if str(checkpoint["fingerprint"]) != pack._fingerprint():
            raise CheckpointError(
                f"{workload.name}: the checkpoint belongs to other trainings or to another version of attnsweep"
            )
        pack._restore(checkpoint)
        return pack

    @classmethod
    def continued(
        cls,
        workload: Workload[P],
        training: Training[P],
        checkpoint: Checkpoint,
        redraw: Redraw,
        device: str = "cpu",
        extra_probe_steps: Sequence[int] = (),
        programs: Executors | None = None,
        width: int | None = None,
    ) -> Self:
        """Copies of one training continue from its checkpoint, taken at the step from which `redraw` draws anew, each
        with a seed of `redraw.seeds`; with the training's own it ends like the training. The pack that wrote it must
        have had this training alone, and the same further arguments."""
        copies = [training] * len(redraw.seeds)
        pack = cls(workload, copies, device, extra_probe_steps, programs, width=width, redraw=redraw)
        pack._restore(repeated(checkpoint, len(copies)))
        return pack

    @property
    def parameters(self) -> State:
        """(A, ...) by name. Writing into them changes the trainings."""
        return self._store.active(self._store.parameters)

    @property
    def _shared(self) -> P:
        return self._store.lanes.shared

    @property
    def done(self) -> bool:
        return self._store.position.size == 0

    @property
    def step(self) -> int:
        """The step of the last probe, which all active trainings have reached."""
        return self._probe_steps[max(self._next_probe - 1, 0)]

    @property
    def reached(self) -> int:
        """Steps done; with L-BFGS until the last probe only."""
        optimizer = self._store.optimizer
        return max(optimizer.n_updates, self.step) if isinstance(optimizer, FirstOrder) else self.step

    @property
    def running(self) -> list[int]:
        """The places in the pack of active trainings."""
        return list(map(int, self._store.position))

    @property
    def _at_own_probe(self) -> bool:
        return self._next_probe in self._own_probes

    def advance(self, n_evaluations: int, n_probes: int | None = None) -> bool:
        """Trains until all trainings have ended, or `n_evaluations` of the loss (steps, but for line searches) or
        `n_probes` have been made. Returns whether all have ended."""
        if not self._known:
            self.compile()  # else it counts as the time of the first trainings
        stop_at = self._objective.n_evaluations + n_evaluations
        last_probe = None if n_probes is None else self._next_probe + n_probes
        while not self.done:
            started, position = time.perf_counter(), self._store.position
            at_probe = self._train(stop_at - self._objective.n_evaluations)
            if at_probe:
                if self._store.all.device.type == "cuda":
                    torch.cuda.synchronize(self._store.all.device)  # else the steps' kernels count as the probe's time
                trained = time.perf_counter()
                self._record_probe()
                self._record.probe_seconds[position] += (time.perf_counter() - trained) / position.size
            self._record.seconds[position] += (time.perf_counter() - started) / position.size
            if not at_probe:
                return False
            if self._at_own_probe:
                self._drop_ended()
            self._next_probe += 1
            if self._next_probe == last_probe:
                return self.done
        return True

    def train_to_end(self, at_once: int = 1_000) -> PackResult:
        """By calls of `advance` with `at_once` evaluations."""
        while not self.advance(at_once):
            pass
        return self.result()

    def prune(self, positions: Sequence[int]) -> None:
        """Ends the trainings at these places early. Only to be called at a probe."""
        self._record.prune(np.asarray(positions, dtype=np.int64), self.step)
        self._drop(np.isin(self._store.position, positions))

    def result(self) -> PackResult:
        return self._record.result()

    def metric(self) -> tuple[str, float] | None:
        return self._record.metric()

    def final_state(self, positions: NDArray[np.int64]) -> tuple[Lanes[P], State]:
        """Parameters and buffers of these trainings: final ones if ended, else present ones."""
        store, steps = self._store, self._record.n_steps.copy()
        steps[store.position] = store.optimizer.steps.numpy(force=True)[: store.position.size]
        lanes, state = store.final_state(positions)
        return lanes, state | store.interventions.held(state, lanes, steps[positions].tolist())

    def checkpoint(self) -> Checkpoint:
        return {
            "fingerprint": np.array(self._fingerprint()),
            "next_probe": np.array(self._next_probe),
            **{name: array.copy() for name, array in prefixed("record", self._record.arrays()).items()},
            **self._store.arrays(),
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        # Batches drawn ahead are drawn again, for the same trainings: for fewer they might be rounded differently.
        self._keep(checkpoint["drawn_for"])
        self._store.draw(int(checkpoint["first_drawn"]))
        self._keep(checkpoint["position"])
        self._store.restore(checkpoint)
        self._next_probe = int(checkpoint["next_probe"])
        self._record.restore(under("record", checkpoint), self.step)
        self._drop(self._record.is_pruned(self._store.position, self.step))

    def _fingerprint(self) -> str:
        trainings = self._store.all.trainings
        return fingerprint(self._workload.name, trainings, self._probe_steps, self._store.rows.shape[1])

    def _train(self, most_evaluations: int) -> bool:
        stop, store, optimizer = self._probe_steps[self._next_probe], self._store, self._store.optimizer
        if not isinstance(optimizer, FirstOrder):
            return self._train_eagerly(stop, most_evaluations)
        until = min(stop, optimizer.n_updates + most_evaluations)
        while optimizer.n_updates < until:
            start = optimizer.n_updates
            store.interventions.begin(store, store.lanes, start)
            change = store.interventions.next_after(start, until)
            program = None if self._programs is None else self._program_of(self._programs, optimizer)
            if program is None:
                self._train_eagerly(stop, change - start)
            else:
                program.advance(store, store.batches, change)
                self._objective.n_evaluations += optimizer.n_updates - start
        return until == stop

    def _train_eagerly(self, stop: int, most_evaluations: int) -> bool:
        store = self._store
        return store.optimizer.advance({ROWS: store.rows}, self._objective.evaluate, stop, most_evaluations)

    def _program_of(self, programs: Executors, optimizer: FirstOrder) -> Steps | None:
        """What takes the next step; `None` if PyTorch does, operation by operation."""
        batch = self._store.batch_at(optimizer.n_updates)
        shapes = shapes_of(batch)
        if shapes not in self._known:
            self._known[shapes] = programs.of(self._store, batch)
        return self._known[shapes]

    def compile(self) -> None:
        """Compiles the programs of steps and probes, where they can be and are not yet."""
        optimizer, programs = self._store.optimizer, self._programs
        if programs is None:
            return
        if isinstance(optimizer, FirstOrder):
            self._program_of(programs, optimizer)
            self._probing.program_at(self.step)
        else:
            self._objective.program_for(self._store.batch_at(0))

    def count_numbers(self) -> int:
        """How many PyTorch's operations output in one training's first step, with L-BFGS its first evaluation."""
        # `vmap` computes a single training twice, side by side.
        computed_twice = not self._objective.is_one_by_one(self._store.batch_at(0))
        return count_numbers(lambda: self._train_eagerly(1, 1)) // max(len(self._store.rows), 1 + computed_twice)

    def trace(self) -> "Trace":
        """The graph of a step, or of loss and gradient for line searches; a `NoRuleError` if there is none."""
        from attnsweep.workloads.engine.compiling.programs import source_of
        from attnsweep.workloads.engine.compiling.tracing import gradient_trace, step_trace

        store = self._store
        if store.lanes.is_rounded:
            raise NoRuleError("trainings in bfloat16 cannot be compiled")
        trace = (step_trace if isinstance(store.optimizer, FirstOrder) else gradient_trace)(store, store.batch_at(0))
        source_of(trace, 1)
        return trace

    def _record_probe(self) -> None:
        probe, position, optimizer = self._next_probe, self._store.position, self._store.optimizer
        self._store.interventions.hold(self._store, self._store.lanes, self._probe_steps[probe])
        metrics = self._probing.measured(self._probe_steps[probe], ends_lanes=self._at_own_probe)
        self._record.add_metrics(probe, position, metrics)
        heads = self._probing.heads()
        if heads is not None:
            self._record.add_heads(probe, position, heads)
        if self._at_own_probe:
            is_finite, n_steps = optimizer.is_finite.cpu().numpy(), optimizer.steps.cpu().numpy()
            self._record.add_progress(probe, position, is_finite[: position.size], n_steps[: position.size])

    def _drop_ended(self) -> None:
        position, shared, records = self._store.position, self._shared, self._record
        is_running = self._store.optimizer.is_running.cpu().numpy()[: position.size]
        ended = ~is_running | records.is_pruned(position, self._probe_steps[self._next_probe])
        if self._next_probe == len(self._probe_steps) - 1:
            ended[:] = True
        else:
            if shared.stop_when_solved:
                probes_so_far = self._own_probes[self._own_probes <= self._next_probe]
                verdicts = judged(self._workload, shared, records.evidence(position, probes_so_far))
                ended |= verdicts.outcome[:, -1] == "solved"
            if shared.stop_when is not None:
                evidence = records.evidence(position, np.array([self._next_probe]))
                ended |= holds(shared.stop_when, evidence.metrics, "stop_when")[:, 0]
        self._drop(ended)

    def _drop(self, is_ended: NDArray[np.bool_]) -> None:
        self._keep(self._store.position[~is_ended])

    def _keep(self, position: NDArray[np.int64]) -> None:
        lanes = self._store.keep(position)
        if lanes is not None:
            self._probing.select(lanes)
