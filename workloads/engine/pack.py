"""A pack: many trainings of one workload in one batched program.

Axes: L lane (all trainings of the pack), A active lane (those not yet ended), P probe.
"""

import time
from collections.abc import Callable, Sequence
from typing import Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from workloads.engine.contract import Batch, Evidence, Lanes, P, Training, Workload
from workloads.engine.optimizers import OPTIMIZERS, State
from workloads.engine.result import PackResult
from workloads.engine.schedule import probe_steps

_NEVER = -1


class Pack(Generic[P]):
    """Trains trainings with equal static parameters, each as if it were alone.

    A training ends at its last step, at the first probe that finds it solved (`stop_when_solved`), or where its loss
    turns non-finite. An ended lane leaves the batch at that probe and costs nothing more.

    Args:
        workload: The problem.
        trainings: One per lane.
        device: Where to train, such as `cpu` or `cuda`.
    """

    def __init__(self, workload: Workload[P], trainings: Sequence[Training[P]], device: str = "cpu") -> None:
        self._workload = workload
        self._all = Lanes(trainings, torch.device(device))
        self._lanes = self._all
        self._parameters, self._buffers, template = _starting_state(workload, self._lanes)
        self._optimizer = OPTIMIZERS[self._lanes.shared.optimizer](self._lanes.tensor("learning_rate"))
        self._loss = _over_lanes(template, workload.loss)
        self._eval_loss = _over_lanes(template, workload.eval_loss)
        self._measure = _over_lanes(template, workload.measure)
        self._eval_batch = workload.eval_batch(self._lanes)
        levels = _over_lanes(template, lambda module, _: workload.levels(module))
        self._levels = _to_numpy(levels(self._parameters, self._buffers, {}))

        n_lanes = len(trainings)
        self._probe_steps = probe_steps(self._lanes.shared.n_steps)
        self._step, self._next_probe = 0, 0
        self._metrics: dict[str, NDArray[np.float64]] = {}
        self._position = np.arange(n_lanes)
        self._last_probe = np.zeros(n_lanes, dtype=np.int64)
        self._diverged_step = np.full(n_lanes, _NEVER, dtype=np.int64)
        self._n_steps = np.zeros(n_lanes, dtype=np.int64)
        self._seconds = np.zeros(n_lanes)
        self._diverged_A = torch.full((n_lanes,), _NEVER, dtype=torch.int64, device=self._lanes.device)

    @property
    def done(self) -> bool:
        """Whether all trainings have ended."""
        return self._position.size == 0

    @property
    def step(self) -> int:
        """The step that the active trainings have reached."""
        return self._step

    def advance(self, n_steps: int) -> bool:
        """Trains on for at most `n_steps` steps; True when all trainings have ended."""
        stop_at = self._step + n_steps
        while not self.done:
            until = min(self._probe_steps[self._next_probe], stop_at)
            started = time.perf_counter()
            while self._step < until:
                self._descend()
            at_probe = until == self._probe_steps[self._next_probe]
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
        )

    def _descend(self) -> None:
        parameters = {name: value.requires_grad_() for name, value in self._parameters.items()}
        batch = self._workload.batch(self._lanes, self._step)
        loss_A = self._loss(parameters, self._buffers, batch)
        gradients = _gradients(loss_A, parameters)
        self._note_divergence(loss_A.detach())
        for value in parameters.values():
            value.requires_grad_(False)
        self._optimizer.step(self._parameters, gradients)
        self._step += 1

    def _note_divergence(self, loss_A: Tensor) -> None:
        first_time = ~torch.isfinite(loss_A) & (self._diverged_A == _NEVER)
        self._diverged_A.masked_fill_(first_time, self._step)

    def _record_probe(self) -> None:
        measured = self._probe()
        for name, values_A in measured.items():
            table = self._metrics.setdefault(name, np.full((self._last_probe.size, len(self._probe_steps)), np.nan))
            table[self._position, self._next_probe] = np.where(np.isfinite(values_A), values_A, np.nan)
        is_finite = (self._diverged_A == _NEVER).cpu().numpy()
        self._last_probe[self._position[is_finite]] = self._next_probe
        self._n_steps[self._position] = self._step
        self._next_probe += 1

    def _probe(self) -> dict[str, NDArray[np.float64]]:
        parameters = {name: value.detach().requires_grad_() for name, value in self._parameters.items()}
        eval_loss_A = self._eval_loss(parameters, self._buffers, self._eval_batch)
        gradients = _gradients(eval_loss_A, parameters)
        with torch.no_grad():
            loss_A = self._loss(self._parameters, self._buffers, self._workload.batch(self._lanes, self._step))
            self._note_divergence(loss_A)
            return _to_numpy(
                {
                    "loss": loss_A,
                    "eval_loss": eval_loss_A.detach(),
                    "grad_norm": _norm_per_lane(gradients),
                    "param_norm": _norm_per_lane(self._parameters),
                    **self._measure(self._parameters, self._buffers, self._eval_batch),
                }
            )

    def _drop_ended(self) -> None:
        """Takes the lanes that ended at the probe just recorded out of the batch."""
        diverged_at = self._diverged_A.cpu().numpy()
        is_diverged = diverged_at != _NEVER
        self._diverged_step[self._position] = diverged_at
        self._n_steps[self._position[is_diverged]] = diverged_at[is_diverged]
        if self._next_probe == len(self._probe_steps):
            ended = np.ones_like(is_diverged)
        else:
            ended = is_diverged | self._is_solved()
        if ended.any():
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
        self._parameters = {name: value[lanes] for name, value in self._parameters.items()}
        self._buffers = {name: value[lanes] for name, value in self._buffers.items()}
        self._eval_batch = {name: value[lanes] for name, value in self._eval_batch.items()}
        self._diverged_A = self._diverged_A[lanes]
        self._optimizer.select(lanes)

    def _evidence(self, positions: NDArray[np.int64], probes: slice) -> Evidence:
        return Evidence(
            steps=np.array(self._probe_steps[probes], dtype=np.int64),
            metrics={name: table[positions][:, probes] for name, table in self._metrics.items()},
            levels={name: values[positions] for name, values in self._levels.items()},
        )


class _Objective(nn.Module):
    """Lets `functional_call` evaluate a function of a module as if it were the module's forward pass."""

    def __init__(self, module: nn.Module, function: Callable[[nn.Module, Batch], object]) -> None:
        super().__init__()
        self.module = module
        self._function = function

    def forward(self, batch: Batch) -> object:
        return self._function(self.module, batch)


def _over_lanes(template: nn.Module, function: Callable[[nn.Module, Batch], object]):  # type: ignore[no-untyped-def]
    objective = _Objective(template, function)

    def one_lane(parameters: State, buffers: State, batch: Batch) -> object:
        state = {f"module.{name}": value for name, value in (parameters | buffers).items()}
        return functional_call(objective, state, (batch,))

    return vmap(one_lane)


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


def _gradients(loss_L: Tensor, parameters: State) -> State:
    # Lanes do not mix, so the sum's gradient is each lane's own.
    gradients = torch.autograd.grad(loss_L.sum(), list(parameters.values()), materialize_grads=True)
    return dict(zip(parameters, gradients, strict=True))


def _norm_per_lane(state: State) -> Tensor:
    squares = [value.square().flatten(1).sum(1) for value in state.values()]
    return torch.stack(squares).sum(0).sqrt()


def _to_numpy(values: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    return {name: value.detach().to("cpu", torch.float64).numpy() for name, value in values.items()}
