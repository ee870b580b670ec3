"""Trainings whose gradients are to be checked, with weights, data and modules in float64. Axes: L training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.construction import starting_state, tensors_of
from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.engine_forms import without_dropout
from attnsweep.workloads.engine.functional import gradients_of, over_lanes
from attnsweep.workloads.engine.layout import selected
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.identities.identity import Point

_VECTOR_SIGMA = 0.3
"""The standard deviation of the noise that is added to biases and gains, so that none of them is 0."""
_STEP = 1e-4
_SOME_EVALUATIONS = 100


@dataclass(frozen=True)
class Subject:
    """Trainings whose gradients are checked, at weights of the caller's choice. The trainings can share one batched
    program.
    """

    workload: Workload[Any]
    where: str
    lanes: Lanes[Any]
    template: nn.Module
    weights: State
    buffers: State
    batch: Batch

    def select(self, lanes: Tensor) -> "Subject":
        """Selects the trainings at the given positions (int64), with their weights, buffers and batches."""
        weights, buffers, batch = (selected(tensors, lanes) for tensors in (self.weights, self.buffers, self.batch))
        return replace(self, lanes=self.lanes.select(lanes), weights=weights, buffers=buffers, batch=batch)

    def points(self) -> list[Point]:
        return [self.point(lane) for lane in range(len(self.lanes.trainings))]

    def point(self, lane: int) -> Point:
        """Builds the module of one training alone, and returns its weights and gradients. Plain autograd computes the
        gradients, rather than the batched program."""
        module = self.workload.build(self.lanes.trainings[lane].parameters).to(torch.float64)
        with torch.no_grad():
            tensors = tensors_of(module)
            for name, values in (self.weights | self.buffers).items():
                tensors[name].copy_(values[lane])
        batch = {name: value[lane] for name, value in self.batch.items()}
        gradients = self._gradients(module, batch)
        return Point(
            module=module,
            batch=batch,
            weights={name: value.detach() for name, value in module.named_parameters()},
            gradients=gradients,
            scale=max(self._scale(module, batch, gradients), torch.finfo(torch.float64).tiny),
        )

    def _gradients(self, module: nn.Module, batch: Batch) -> State:
        parameters: State = {name: value for name, value in module.named_parameters() if value.requires_grad}
        with without_dropout():
            loss = self.workload.loss(module, batch)
        return gradients_of("loss", loss, parameters)

    def _scale(self, module: nn.Module, batch: Batch, gradients: State) -> float:
        """Estimates how large the terms are that add up to the gradient of one training. The rounding errors of the
        gradient are proportional to this size.

        The size is the norm of the gradient plus that of a change of it. Near a stationary point the terms of a
        gradient cancel, and their rounding errors may be larger than the gradient. The size of these terms is measured
        by a change: how much the gradient changes when all weights change by a small share, divided by that share.
        """
        draw = torch.Generator().manual_seed(0)
        weights = {name: value.detach().clone() for name, value in module.named_parameters()}
        with torch.no_grad():
            for value in module.parameters():
                sign = torch.randint(2, value.shape, generator=draw, dtype=value.dtype) * 2 - 1
                value.mul_(1 + _STEP * sign)
        moved = self._gradients(module, batch)
        with torch.no_grad():
            for name, value in module.named_parameters():
                value.copy_(weights[name])
        change = {name: (moved[name] - gradients[name]) / _STEP for name in gradients}
        return norm(gradients) + norm(change)


def at_random_weights(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> Subject:
    """Returns the trainings at random weights, none of which is exactly 0.

    The weights are the values from `build` with added noise: N(0, 2 / (rows + columns)) to matrices, N(0, 0.3^2) to
    biases and gains.
    """
    lanes, weights, buffers, template = _started(workload, trainings)
    built = {name: value.detach() for name, value in template.named_parameters()}
    drawn = {}
    for name, value in weights.items():
        shape = tuple(value.shape[1:])
        sigma = math.sqrt(2.0 / (shape[-2] + shape[-1])) if len(shape) >= 2 else _VECTOR_SIGMA
        drawn[name] = built[name] + sigma * lanes.streams.normal(f"gradients/{name}", shape)
    return _subject(workload, "random weights", lanes, template, drawn, buffers)


def after_some_steps(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> Subject | None:
    """Trains for a hundred evaluations of the loss. Returns the trainings at the weights reached; `None` if no training
    has a finite loss."""
    pack = Pack(workload, trainings)
    pack.advance(_SOME_EVALUATIONS)
    _, state = pack.final_state(np.arange(len(trainings)))
    return at_weights(workload, trainings, state, f"the weights after {_SOME_EVALUATIONS} evaluations")


def at_weights(workload: Workload[Any], trainings: Sequence[Training[Any]], state: State, where: str) -> Subject | None:
    """Returns the trainings at given weights and buffers, such as the final ones. The first axis of weights and buffers
    is the training.

    Trainings whose loss is not finite there are left out. Returns `None` if no training is left.
    """
    lanes, weights, buffers, template = _started(workload, trainings, state)
    subject = _subject(workload, where, lanes, template, weights, buffers)
    with torch.no_grad():
        loss = over_lanes(template, workload.loss)(weights, buffers, subject.batch)
    finite = loss.isfinite().nonzero().flatten()
    return subject.select(finite) if finite.numel() else None


def _started(
    workload: Workload[Any], trainings: Sequence[Training[Any]], start: State | None = None
) -> tuple[Lanes[Any], State, State, nn.Module]:
    in_float64 = [replace(training, parameters=replace(training.parameters, dtype="float64")) for training in trainings]
    lanes = Lanes(in_float64, torch.device("cpu"))
    return lanes, *starting_state(workload, lanes, start)


def _subject(
    workload: Workload[Any], where: str, lanes: Lanes[Any], template: nn.Module, weights: State, buffers: State
) -> Subject:
    (batch, *_) = workload.batches(lanes, range(1))
    return Subject(workload, where, lanes, template, weights, buffers, batch)


def norm(state: Mapping[str, Tensor]) -> float:
    """Returns the Euclidean norm over all given tensors together."""
    return math.hypot(*(value.norm().item() for value in state.values()))
