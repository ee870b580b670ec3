"""A pack: many trainings of one workload in one batched program.

Axes: L lane (all trainings of the pack), A active lane (those not yet ended), P probe.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import stack_module_state

from workloads.engine.contract import Batch, Evidence, Lanes, P, Training, Workload
from workloads.engine.first_order import norm_per_lane
from workloads.engine.functional import over_lanes
from workloads.engine.layout import Layout
from workloads.engine.optimizers import State
from workloads.engine.result import HeadProbe, PackResult
from workloads.engine.update_rules import optimizer_of

_NEVER = -1
_ROWS = "rows"
"""The one name of what optimizers are handed: all parameters of a lane in one row."""
_PROBES_AHEAD = 2
"""How many probes a lane may run ahead of the slowest: of 121 evaluations of a pack that waits at each (64 lanes, 50
steps of L-BFGS), 82 are left with one, 73 with two; 62 is what the slowest lane needs. A lane found solved has run on
in vain for as long."""


class Pack(Generic[P]):
    """Trains trainings with equal static parameters, each as if it were alone.

    A training ends at its last step, at the first probe that finds it solved (`stop_when_solved`), where its loss
    turns non-finite, or where its optimizer's own tolerances end it. An ended lane leaves the batch at the next probe,
    is measured there as it stands, and costs nothing more.

    Args:
        workload: The problem.
        trainings: One per lane.
        device: Where to train, such as `cpu` or `cuda`.
    """

    def __init__(self, workload: Workload[P], trainings: Sequence[Training[P]], device: str = "cpu") -> None:
        self._workload = workload
        self._all = Lanes(trainings, torch.device(device))
        self._lanes = self._all
        parameters, self._buffers, template = _starting_state(workload, self._lanes)
        self._layout = Layout(parameters)
        self._rows = self._layout.rows(parameters)
        self._optimizer = optimizer_of(self._lanes)
        self._loss = over_lanes(template, workload.loss)
        self._eval_loss = over_lanes(template, workload.eval_loss)
        self._measure = over_lanes(template, workload.measure)
        self._eval_batch = workload.eval_batch(self._lanes)
        levels = over_lanes(template, workload.levels)
        self._levels = _to_numpy(levels(self._parameters, self._buffers, self._eval_batch))
        self._all_buffers = self._buffers
        self._final_rows = torch.empty_like(self._rows)
        self._heads: list[HeadProbe] = []

        n_lanes = len(trainings)
        self._probe_steps = workload.probe_steps(self._lanes.shared)
        self._next_probe, self._n_evaluations = 0, 0
        self._first_drawn = 0
        self._drawn: list[Batch] = []
        self._metrics: dict[str, NDArray[np.float64]] = {}
        self._position = np.arange(n_lanes)
        self._last_probe = np.zeros(n_lanes, dtype=np.int64)
        self._diverged_step = np.full(n_lanes, _NEVER, dtype=np.int64)
        self._n_steps = np.zeros(n_lanes, dtype=np.int64)
        self._seconds = np.zeros(n_lanes)

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

    def advance(self, n_evaluations: int) -> bool:
        """Trains on for at most `n_evaluations` evaluations of the pack; True when all trainings have ended.

        An evaluation is a step, except for optimizers that search along lines.
        """
        stop_at = self._n_evaluations + n_evaluations
        while not self.done:
            stops = self._probe_steps[self._next_probe : self._next_probe + 1 + _PROBES_AHEAD]
            started = time.perf_counter()
            evaluations_left = stop_at - self._n_evaluations
            at_probe = self._optimizer.advance({_ROWS: self._rows}, self._evaluate, stops, evaluations_left)
            if at_probe:
                self._record_probe()
            self._seconds[self._position] += (time.perf_counter() - started) / self._position.size
            if not at_probe:
                return False
            self._drop_ended()
        return True

    def result(self) -> PackResult:
        """What was measured. The pack must be done."""
        assert self.done
        return PackResult(
            evidence=self._evidence(np.arange(self._last_probe.size), slice(None)),
            last_probe=self._last_probe,
            diverged_step=self._diverged_step,
            n_steps=self._n_steps,
            train_seconds=self._seconds,
            heads=tuple(self._heads),
        )

    def final_state(self, positions: NDArray[np.int64]) -> tuple[Lanes[P], State]:
        """Some trainings, (K,) by position in the pack, and their parameters and buffers where they ended."""
        assert self.done
        lanes = torch.from_numpy(positions).to(self._all.device)
        return self._all.select(lanes), _rows(self._layout.views(self._final_rows) | self._all_buffers, lanes)

    def _evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        """The loss that is descended, and its gradients: `Evaluate`."""
        self._n_evaluations += 1
        buffers, batch = self._buffers, self._batch_at(step)
        if lanes is not None:
            buffers, batch = _rows(buffers, lanes), _rows(batch, lanes)
        loss, gradient = self._descent(self._loss, parameters[_ROWS], buffers, batch)
        return loss, {_ROWS: gradient}

    def _descent(
        self, objective: Callable[..., Any], rows: Tensor, buffers: State, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """An objective (K,) at rows (K, n), and its gradients (K, n)."""
        leaf = rows.detach().requires_grad_()
        loss = objective(self._layout.views(leaf), buffers, batch)
        # Lanes do not mix, so the sum's gradient is each lane's own.
        (gradient,) = torch.autograd.grad(loss.sum(), leaf, materialize_grads=True)
        return loss.detach(), gradient

    def _batch_at(self, step: int) -> Batch:
        # Kept: optimizers that descend one batch ask for it again and again.
        if not self._first_drawn <= step < self._first_drawn + len(self._drawn):
            self._first_drawn = step
            self._drawn = self._workload.batches(self._lanes, range(step, self._lanes.shared.n_steps + 1))
        return self._drawn[step - self._first_drawn]

    def _record_probe(self) -> None:
        measured = self._probe()
        for name, values_A in measured.items():
            table = self._metrics.setdefault(name, np.full((self._last_probe.size, len(self._probe_steps)), np.nan))
            table[self._position, self._next_probe] = np.where(np.isfinite(values_A), values_A, np.nan)
        heads = self._workload.score_heads(self._lanes, self._parameters | self._buffers)
        if heads is not None:
            probe = HeadProbe(step=self._probe_steps[self._next_probe], lanes=self._position, heads=heads)
            self._heads.append(probe)
        is_finite = self._optimizer.is_finite.cpu().numpy()
        n_steps = self._optimizer.steps.cpu().numpy()
        self._last_probe[self._position[is_finite]] = self._next_probe
        self._n_steps[self._position] = n_steps
        self._diverged_step[self._position] = np.where(is_finite, _NEVER, n_steps)
        self._next_probe += 1

    def _probe(self) -> dict[str, NDArray[np.float64]]:
        eval_loss_A, gradient = self._descent(self._eval_loss, self._rows, self._buffers, self._eval_batch)
        descended = self._optimizer.descended()
        with torch.no_grad():
            parameters = self._parameters
            loss_A = descended["train_loss"] if descended else self._train_loss()
            self._optimizer.observe(loss_A)
            return _to_numpy(
                {
                    "loss": loss_A,
                    "eval_loss": eval_loss_A,
                    "grad_norm": norm_per_lane({_ROWS: gradient}),
                    "param_norm": norm_per_lane({_ROWS: self._rows}),
                    **self._measure(parameters, self._buffers, self._eval_batch | descended),
                }
            )

    def _train_loss(self) -> Tensor:
        batch = self._batch_at(self._optimizer.batch_step(self._probe_steps[self._next_probe]))
        loss_A: Tensor = self._loss(self._parameters, self._buffers, batch)
        return loss_A

    def _drop_ended(self) -> None:
        """Takes the lanes that ended at the probe just recorded out of the batch."""
        is_over = self._next_probe == len(self._probe_steps)
        ended = ~self._optimizer.is_running.cpu().numpy() | (is_over or self._is_solved())
        if ended.any():
            gone = torch.from_numpy(self._position[ended]).to(self._lanes.device)
            self._final_rows[gone] = self._rows[torch.from_numpy(ended).to(self._rows.device)]
            self._select(np.flatnonzero(~ended))

    def _is_solved(self) -> NDArray[np.bool_]:
        shared = self._lanes.shared
        if not shared.stop_when_solved:
            return np.zeros(self._position.size, dtype=np.bool_)
        seen = slice(0, self._next_probe)
        verdicts = self._workload.judge(shared, self._evidence(self._position, seen))
        return np.asarray(verdicts.outcome[:, -1] == "solved")

    def _select(self, kept: NDArray[np.int64]) -> None:
        self._position = self._position[kept]
        if self.done:
            return
        lanes = torch.from_numpy(kept).to(self._lanes.device)
        self._lanes = self._lanes.select(lanes)
        self._rows = self._rows[lanes]
        self._buffers = _rows(self._buffers, lanes)
        self._eval_batch = _rows(self._eval_batch, lanes)
        self._drawn = [_rows(batch, lanes) for batch in self._drawn]
        self._optimizer.select(lanes)

    def _evidence(self, positions: NDArray[np.int64], probes: slice) -> Evidence:
        return Evidence(
            steps=np.array(self._probe_steps[probes], dtype=np.int64),
            metrics={name: table[positions][:, probes] for name, table in self._metrics.items()},
            levels={name: values[positions] for name, values in self._levels.items()},
        )


def _starting_state(workload: Workload[P], lanes: Lanes[P]) -> tuple[State, State, nn.Module]:
    modules = [workload.build(training.parameters).to(lanes.dtype) for training in lanes.trainings]
    parameters, buffers = stack_module_state(modules)
    initial = workload.initial(modules[0], lanes)
    missing = parameters.keys() - initial.keys()
    if missing:
        raise TypeError(f"{workload.name}.initial left out the parameters {sorted(missing)}")
    stacked = {name: value.detach().to(lanes.device) for name, value in (parameters | buffers | initial).items()}
    return (
        {name: stacked[name] for name in parameters},
        {name: stacked[name] for name in buffers},
        modules[0].to(lanes.device),
    )


def _rows(state: State, lanes: Tensor) -> State:
    return {name: value[lanes] for name, value in state.items()}


def _to_numpy(values: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    return {name: value.detach().to("cpu", torch.float64).numpy() for name, value in values.items()}
