"""The gradients that the engines compute, of all trainings at once. Axes: L lane."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnsweep.workloads.engine.block_step import StepGraph
from attnsweep.workloads.engine.blocks import BlockProgram, Problem
from attnsweep.workloads.engine.first_order import Sgd
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.layout import Layout
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.engine.programs import Step
from attnsweep.workloads.gradients.subject import Subject

_RATE = 2.0**40
"""The learning rate of a step that is taken to read its gradient: a power of 2, so that division by it is exact, and so
large that the weights' own digits do not matter."""


def vmapped_gradients(subject: Subject) -> State:
    """(L, ...) by name, as the vmapped engine computes them."""
    leaves = {name: value.detach().requires_grad_() for name, value in subject.weights.items()}
    loss = over_lanes(subject.template, subject.workload.loss)(leaves, subject.buffers, subject.batch)
    found = torch.autograd.grad(loss.sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
    return dict(zip(leaves, found, strict=True))


def block_gradients(subject: Subject, make: Callable[[StepGraph, Sequence[Tensor]], Step]) -> State:
    """(L, ...) by name, as the block engine computes them: read from one step of gradient descent.

    Args:
        subject: The trainings.
        make: Makes the step: `interpreted`, or `loaded`, which compiles it.

    Raises:
        NoRuleError: If the step cannot be computed for a block.
        NoCompilerError: If it is to be compiled and this machine cannot.
    """
    layout = Layout(subject.weights)
    rows = layout.rows(subject.weights)
    optimizer = Sgd(_descent(len(subject.lanes.trainings)))
    problem = Problem(subject.workload, subject.template, layout, subject.lanes.shared)
    program = BlockProgram(problem, optimizer, rows, subject.buffers, subject.batch, make)
    program.advance(optimizer, rows, subject.buffers, lambda _, __: [subject.batch], 1)
    after = layout.views(rows)
    return {name: (before - after[name]) / _RATE for name, before in subject.weights.items()}


def _descent(n_lanes: int) -> Settings:
    nothing = torch.zeros(n_lanes, dtype=torch.float64)
    return Settings(
        learning_rate=nothing + _RATE,
        momentum=nothing,
        weight_decay=nothing,
        warmup_steps=nothing,
        gradient_clip_norm=nothing + torch.nan,
        learning_rate_schedule="constant",
        n_steps=1,
    )
