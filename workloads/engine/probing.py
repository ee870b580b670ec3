"""What a probe measures of a pack. Axes: L training of the pack, A active training, W lane."""

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
"""The prefix, in a probe's batch, of what the optimizer already knows."""


class Probing:
    """Measures the trainings of a pack.

    Args:
        workload: The problem.
        store: The lanes, where they start.
        objective: Of the pack.

    Attributes:
        levels: (L,) the reference levels, by name.
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
        """Keeps only these lanes, (W,) int64, of those before."""
        self._least_loss = self._least_loss[lanes]
        self._eval_batch = selected(self._eval_batch, lanes)

    def measured(self, step: int, ends_lanes: bool) -> dict[str, NDArray[np.float64]]:
        """(A,) by metric, at a step that all lanes have reached.

        Args:
            step: The step.
            ends_lanes: Whether lanes whose loss is not finite, or lies below the least possible, end here.
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
            own = optimizer.batch_step(step)
            loss_W = descended["train_loss"] if descended else self._objective.measured(own)
            if ends_lanes:
                optimizer.observe(loss_W.masked_fill(eval_loss_W < self._least_loss, torch.nan))
            norms = {"grad_norm": norm_per_lane({ROWS: gradient}), "param_norm": norm_per_lane({ROWS: leaf})}
            conserved = self._conserved.measured(store.position, store.active(views(leaf)))
            found = {"loss": loss_W, "eval_loss": eval_loss_W, **norms, **conserved, **measures}
            return store.active(to_numpy(found))

    def heads(self) -> HeadScores | None:
        """The scores (A, ...) of the attention heads, if the workload has some."""
        store = self._store
        heads = self._workload.score_heads(store.lanes, measurable(store.parameters | store.buffers))
        if heads is None:
            return None
        return HeadScores(scores=store.active(heads.scores), role=heads.role[: store.position.size])


def examined(workload: Workload[P], module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """One training's `eval_loss`, and its measures, which take no gradient."""
    descended = under(_DESCENDED, batch)
    own = {name: value for name, value in batch.items() if not name.startswith(f"{_DESCENDED}/")}
    own |= workload.answers(module, own)
    eval_loss = workload.eval_loss(module, own)
    with torch.no_grad():
        return eval_loss, workload.measure(module, own | descended)
