"""Evaluates the training loss of a pack's lanes and its gradient, with PyTorch's own kernels or a compiled program.

Axes: W lane, K lane evaluated, n place in a row.
"""

from torch import Tensor

from attnsweep.workloads.engine.compiling.gradient import GradientProgram
from attnsweep.workloads.engine.contract import Batch, P, Workload
from attnsweep.workloads.engine.executors.programs import Executors
from attnsweep.workloads.engine.functional import descent, numbers_of, over_lanes
from attnsweep.workloads.engine.lane_store import LaneStore
from attnsweep.workloads.engine.layout import ROWS, in_type, measurable, selected
from attnsweep.workloads.engine.optimizers import State


class Objective:
    """The training loss of a pack, as a function that the optimizer minimizes.

    Attributes:
        n_evaluations: The number of evaluations so far.
    """

    def __init__(self, workload: Workload[P], store: LaneStore[P], programs: Executors | None) -> None:
        self._store, self._programs = store, programs
        self._loss = over_lanes(store.problem.template, workload.loss)
        self.n_evaluations = 0

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        """Returns the losses (K,) and gradients (K, n) of the given lanes. Implements the protocol `Evaluate`."""
        self.n_evaluations += 1
        store = self._store
        buffers, batch = store.buffers, store.batch_at(step)
        program = self.program_for(batch)
        if program is not None:
            loss, gradient = program.descent(parameters[ROWS], buffers, batch, lanes)
            return loss, {ROWS: gradient}
        if lanes is not None:
            buffers, batch = selected(buffers, lanes), selected(batch, lanes)
        leaf, dtype = parameters[ROWS].detach().requires_grad_(), store.lanes.loss_dtype
        views = store.problem.layout.views(leaf.to(dtype))
        loss, gradient = descent("loss", self._loss(views, in_type(buffers, dtype), in_type(batch, dtype)), leaf)
        return loss.to(leaf.dtype), {ROWS: gradient}

    def measured(self, step: int) -> Tensor:
        """Computes the training loss (W,) on a step's batch without gradients, in the dtype in which probes measure."""
        store = self._store
        return numbers_of("loss", self._loss(*map(measurable, (store.parameters, store.buffers, store.batch_at(step)))))

    def program_for(self, batch: Batch) -> GradientProgram | None:
        """Returns the compiled program of loss and gradient for batches of this shape; `None` to use `vmap`."""
        if self._programs is None:
            return None
        return self._programs.gradient_of(self._store, batch)
