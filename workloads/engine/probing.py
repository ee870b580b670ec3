"""Evaluates a pack's losses: the training loss with its gradient, and all that is measured at probes."""

import contextlib
from collections.abc import Hashable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, HeadScores, P, Training, Workload
from attnsweep.workloads.engine.counting import count_numbers
from attnsweep.workloads.engine.executors import Executors, Gradients, Measures
from attnsweep.workloads.engine.first_order import norm_per_lane
from attnsweep.workloads.engine.functional import (
    gradients_of,
    in_eval_mode,
    loss_and_gradient,
    n_operations_behind,
    numbers_of,
    one_lane,
    over_lanes,
    to_numpy,
)
from attnsweep.workloads.engine.judging import least_losses
from attnsweep.workloads.engine.lane_state import shapes_of
from attnsweep.workloads.engine.lane_store import LaneStore
from attnsweep.workloads.engine.layout import ROWS, in_type, measurable, prefixed, selected, under
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.schedule import probe_steps
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.vocabulary import RESERVED_METRICS

_LARGE = 80_000
"""Where an operation of loss and gradient outputs so many numbers on average, eager steps compute one training after
another. Of a two-layer transformer of width 32 a pack of 4 is 1.4 times as fast by `vmap` at 30,000, equally fast at
100,000; a single training, which `vmap` computes twice, takes half the time alone."""


class Objective:
    """What the optimizer minimizes."""

    def __init__(self, workload: Workload[P], store: LaneStore[P], programs: Executors | None) -> None:
        self._store, self.programs = store, programs
        self._loss = over_lanes(store.blueprint.template, workload.loss)
        self._loss_of_one = one_lane(store.blueprint.template, workload.loss)
        self._is_one_by_one: dict[Hashable, bool] = {}
        self.n_evaluations = 0

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        """An `Evaluate`: losses and gradients, one row each."""
        self.n_evaluations += 1
        store = self._store
        buffers, batch = store.buffers, store.batch_at(step)
        program = self.program_for(batch)
        if program is not None:
            loss, gradient = program.loss_and_gradient(parameters[ROWS], buffers, batch, lanes)
            return loss, {ROWS: gradient}
        if lanes is not None:
            buffers, batch = selected(buffers, lanes), selected(batch, lanes)
        leaf, dtype = parameters[ROWS].detach().requires_grad_(), store.lanes.loss_dtype
        is_one_by_one = self.is_one_by_one(batch)
        buffers, batch = in_type(buffers, dtype), in_type(batch, dtype)
        if is_one_by_one:
            loss, gradient = self._one_by_one(leaf.detach(), buffers, batch)
        else:
            views = store.blueprint.layout.views(leaf.to(dtype))
            loss, gradient = loss_and_gradient("loss", self._loss(views, buffers, batch), leaf)
        return loss.to(leaf.dtype), {ROWS: gradient}

    def is_one_by_one(self, batch: Batch) -> bool:
        """Whether eager steps compute one training after another, because `vmap` would save no time. It depends on one
        training's shapes alone, never on the pack."""
        store = self._store
        if store.lanes.device.type != "cpu":
            return False
        shapes = shapes_of(batch)
        if shapes not in self._is_one_by_one:
            n_operations: list[int] = []

            def compute_one() -> None:
                dtype = store.lanes.loss_dtype
                leaves, loss = self._alone(store.rows, in_type(store.buffers, dtype), in_type(batch, dtype), 0)
                gradients_of("loss", loss, leaves)
                n_operations.append(n_operations_behind(loss))

            self._is_one_by_one[shapes] = count_numbers(compute_one) >= _LARGE * n_operations[0]
        return self._is_one_by_one[shapes]

    def _one_by_one(self, rows: Tensor, buffers: State, batch: Batch) -> tuple[Tensor, Tensor]:
        gradient, losses = torch.zeros_like(rows), []
        gradients = self._store.blueprint.layout.views(gradient)
        for lane in range(len(rows)):
            leaves, loss = self._alone(rows, buffers, batch, lane)
            for name, value in gradients_of("loss", loss, leaves).items():
                gradients[name][lane] = value
            losses.append(loss.detach())
        return torch.stack(losses), gradient

    def _alone(self, rows: Tensor, buffers: State, batch: Batch, lane: int) -> tuple[State, Tensor]:
        views = self._store.blueprint.layout.views(rows[lane : lane + 1].detach().to(self._store.lanes.loss_dtype))
        leaves = {name: value[0].requires_grad_() for name, value in views.items()}
        own = ({name: value[lane] for name, value in part.items()} for part in (buffers, batch))
        return leaves, self._loss_of_one(leaves, *own)

    def measured(self, batch: Batch) -> Tensor:
        """Each training's loss on a batch, without gradients, in the type of measurements."""
        store = self._store
        state = map(measurable, (store.parameters, store.buffers, batch))
        return numbers_of("loss", self._loss(*state))

    def program_for(self, batch: Batch) -> Gradients | None:
        """`None` for PyTorch."""
        return None if self.programs is None else self.programs.gradient_of(self._store, batch)


_SHARE, _FREE = 0.1, 10**8
"""Default probes may take this share of the steps' work, and in any case this many numbers: 0.05 s of a core."""
_LEAST_PROBES = 8
"""With fewer there is no learning curve, and what is solved goes on long after."""


def probe_steps_of(workload: Workload[P], parameters: P) -> tuple[int, ...]:
    """The workload's, or as many as `_SHARE` of the steps' work or `_FREE` buys, at least `_LEAST_PROBES`."""
    own = workload.probe_steps(parameters)
    return probe_steps(parameters.n_steps, max_probes=_max_probes(workload, parameters)) if own is None else own


def _max_probes(workload: Workload[P], parameters: P) -> float:
    # Counted, not timed: results depend on probes, and must not depend on a machine's speed.
    key = workload.name, type(workload), parameters.static_key()
    if key not in _COUNTED:
        kind, declared = type(parameters), parameters.declared()
        static = {name: value for name, value in parameters.values().items() if declared[name].static}
        with contextlib.suppress(SpecError):
            parameters = kind.resolve(static)
        _COUNTED[key] = _counted(workload, parameters)
    step, probe = _COUNTED[key]
    return max(max(_SHARE * step * parameters.n_steps, _FREE) / probe, _LEAST_PROBES)


_COUNTED: dict[Hashable, tuple[int, int]] = {}


def _counted(workload: Workload[P], parameters: P) -> tuple[int, int]:
    """How many numbers a step and a probe of one training compute."""
    store = LaneStore(workload, [Training(parameters, 0)] * 2, "cpu", None, None)
    objective = Objective(workload, store, None)
    probing = Probing(workload, store, objective)
    objective.is_one_by_one(store.batch_at(0))  # decided here, it is not counted
    # Of two trainings, because `vmap` would compute a single one twice.
    step = count_numbers(lambda: objective.evaluate({ROWS: store.rows}, 0)) // 2
    return step, count_numbers(lambda: (probing.measured(0, ends_lanes=False), probing.heads())) // 2


_DESCENDED = "descended"
"""The prefix, in the batch of a measurement, of values that the optimizer has already computed."""


class Probing:
    """What is measured at probes: losses, norms, metrics and head scores; and, at the start, reference `levels`."""

    def __init__(self, workload: Workload[P], store: LaneStore[P], objective: Objective) -> None:
        self._workload, self._store, self._objective = workload, store, objective
        template = store.blueprint.template
        self._examine = over_lanes(template, in_eval_mode(partial(examined, workload)))
        self._examine_one = one_lane(template, in_eval_mode(partial(examined, workload)))
        self._eval_batch = workload.eval_batch(store.lanes)
        levels_of = over_lanes(template, in_eval_mode(workload.levels))
        levels = to_numpy(levels_of(*map(measurable, (store.parameters, store.buffers, self._eval_batch))))
        self._least_loss = store.on_device(least_losses(workload, levels))
        self.levels = store.active(levels)

    def select(self, lanes: Tensor) -> None:
        self._least_loss = self._least_loss[lanes]
        self._eval_batch = selected(self._eval_batch, lanes)

    def measured(self, step: int, ends_lanes: bool) -> dict[str, NDArray[np.float64]]:
        """All metrics, one number per training, at a step that all have reached. With `ends_lanes` those end whose loss
        is not finite or lower than possible (`least_losses`)."""
        store, optimizer = self._store, self._store.optimizer
        descended = measurable(optimizer.descended())
        found, gradient = self._measured(*self._read_at(step))
        found |= {"loss": descended["train_loss"]} if descended else {}
        if ends_lanes:
            optimizer.observe(found["loss"].masked_fill(found["eval_loss"] < self._least_loss, torch.nan))
        rows = measurable({ROWS: store.rows.detach()})
        norms = {"grad_norm": norm_per_lane({ROWS: gradient}), "param_norm": norm_per_lane(rows)}
        first = {name: found.pop(name) for name in ("loss", "eval_loss")}
        return store.active(to_numpy(first | norms | found))

    def _read_at(self, step: int) -> tuple[Batch, Batch | None]:
        """The batch of a probe, and that of the training loss if the optimizer has not computed it."""
        store, optimizer = self._store, self._store.optimizer
        descended = measurable(optimizer.descended())
        batch = measurable(self._eval_batch | self._workload.fresh_eval_batch(store.lanes, step))
        trained_on = None if descended else store.batch_at(optimizer.batch_step(step))
        return batch | prefixed(_DESCENDED, descended), trained_on

    def program_at(self, step: int) -> Measures | None:
        """`None` if PyTorch measures."""
        return self._program(*self._read_at(step))

    def _program(self, batch: Batch, trained_on: Batch | None) -> Measures | None:
        programs = self._objective.programs
        if programs is None:
            return None
        return programs.measures_of(self._store, batch, trained_on, self._examine_one)

    def _measured(self, batch: Batch, trained_on: Batch | None) -> tuple[State, Tensor]:
        """The loss on `trained_on`, the held-out loss and the metrics, by name, and the held-out loss's gradient."""
        store, program = self._store, self._program(batch, trained_on)
        if program:
            return program.measured(store.rows, store.buffers, batch, trained_on)
        leaf = measurable({ROWS: store.rows.detach()})[ROWS].requires_grad_()
        eval_loss, measures = self._examine(store.blueprint.layout.views(leaf), measurable(store.buffers), batch)
        eval_loss, gradient = loss_and_gradient("eval_loss", eval_loss, leaf)
        with torch.no_grad():
            loss = {} if trained_on is None else {"loss": self._objective.measured(trained_on)}
        return {**loss, "eval_loss": eval_loss, **measures}, gradient

    def heads(self) -> HeadScores | None:
        """Of active trainings; `None` without heads."""
        store = self._store
        heads = self._workload.score_heads(store.lanes, measurable(store.parameters | store.buffers))
        if heads is None:
            return None
        return HeadScores(scores=store.active(heads.scores), role=heads.role[: store.position.size])


def examined(workload: Workload[P], module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """One training's `eval_loss`, and the metrics of `Workload.measure` without gradients."""
    descended = under(_DESCENDED, batch)
    data = {name: value for name, value in batch.items() if not name.startswith(f"{_DESCENDED}/")}
    evaluated = workload.evaluate(module, data)
    with torch.no_grad():
        measures = workload.measure(module, data | evaluated | descended)
    if reserved := [name for name in measures if name in RESERVED_METRICS]:
        expected = f"a metric that is not called {', '.join(RESERVED_METRICS)}"
        raise SpecError(f"{workload.name}.measure", given=reserved[0], expected=expected, fix="rename the metric")
    return evaluated["eval_loss"], measures
