"""Computes what probes measure of a pack. Axes: L training of the pack, A active training, W lane."""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.engine.conserved import ConservedQuantities
from attnsweep.workloads.engine.contract import Batch, HeadScores, P, Workload
from attnsweep.workloads.engine.first_order import norm_per_lane
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.judging import least_losses
from attnsweep.workloads.engine.lane_store import LaneStore
from attnsweep.workloads.engine.layout import ROWS, prefixed, selected, under
from attnsweep.workloads.engine.objective import Objective
from attnsweep.workloads.engine.precision import measurable
from attnsweep.workloads.engine.readings import descent, to_numpy

_DESCENDED = "descended"
"""The prefix, in a probe's batch, of values that the optimizer has already computed."""


class Probing:
    """Measures the trainings of a pack at its probes.

    Args:
        workload: The problem.
        store: The lanes, in their initial state.
        objective: The pack's training loss.

    Attributes:
        levels: The reference levels (L,) by name.
    """

    def __init__(self, workload: Workload[P], store: LaneStore[P], objective: Objective) -> None:
        self._workload, self._store, self._objective = workload, store, objective
        template = store.problem.template
        self._conserved = ConservedQuantities(workload, store.all, measurable(store.active(store.parameters)))
        self._examine = over_lanes(template, partial(examined, workload))
        self._eval_batch = workload.eval_batch(store.lanes)
        levels_of = over_lanes(template, workload.levels)
        levels = to_numpy(levels_of(*map(measurable, (store.parameters, store.buffers, self._eval_batch))))
        self._least_loss = store.on_device(least_losses(workload, levels))
        self.levels = store.active(levels)

    def select(self, lanes: Tensor) -> None:
        """Drops all lanes except those at positions (W,) int64."""
        self._least_loss = self._least_loss[lanes]
        self._eval_batch = selected(self._eval_batch, lanes)

    def measured(self, step: int, ends_lanes: bool) -> dict[str, NDArray[np.float64]]:
        """Computes the metrics (A,) by name, at a step that all lanes have reached.

        Args:
            step: The step.
            ends_lanes: Whether to end lanes whose loss is not finite or lower than possible (`least_losses`).
        """
        store, optimizer = self._store, self._store.optimizer
        fresh = self._workload.fresh_eval_batch(store.lanes, step)
        descended = measurable(optimizer.descended())
        batch = measurable(self._eval_batch | fresh) | prefixed(_DESCENDED, descended)
        leaf = measurable({ROWS: store.rows.detach()})[ROWS].requires_grad_()
        views = store.problem.layout.views
        eval_loss_W, measures = self._examine(views(leaf), measurable(store.buffers), batch)
        eval_loss_W, gradient = descent("eval_loss", eval_loss_W, leaf)
        with torch.no_grad():
            batch_step = optimizer.batch_step(step)
            loss_W = descended["train_loss"] if descended else self._objective.measured(batch_step)
            if ends_lanes:
                optimizer.observe(loss_W.masked_fill(eval_loss_W < self._least_loss, torch.nan))
            norms = {"grad_norm": norm_per_lane({ROWS: gradient}), "param_norm": norm_per_lane({ROWS: leaf})}
            conserved = self._conserved.measured(store.position, store.active(views(leaf)))
            metrics = {"loss": loss_W, "eval_loss": eval_loss_W, **norms, **conserved, **measures}
            return store.active(to_numpy(metrics))

    def heads(self) -> HeadScores | None:
        """Computes the scores (A, ...) of the attention heads; `None` if the workload has no heads."""
        store = self._store
        heads = self._workload.score_heads(store.lanes, measurable(store.parameters | store.buffers))
        if heads is None:
            return None
        return HeadScores(scores=store.active(heads.scores), role=heads.role[: store.position.size])


def examined(workload: Workload[P], module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the `eval_loss` of one training, and the metrics of `measure`, which get no gradients."""
    descended = under(_DESCENDED, batch)
    data = {name: value for name, value in batch.items() if not name.startswith(f"{_DESCENDED}/")}
    data |= workload.answers(module, data)
    eval_loss = workload.eval_loss(module, data)
    with torch.no_grad():
        return eval_loss, workload.measure(module, data | descended)
