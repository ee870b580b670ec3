"""Computes the gradients of all trainings together by the engines. Axes: L lane, n place in a lane's row."""

import torch
from torch import Tensor

from attnsweep.workloads.engine.compiling import libraries
from attnsweep.workloads.engine.compiling.gradient import GradientProgram, adding, gradient_graph
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.constants import digest_of
from attnsweep.workloads.engine.executors.blocks import BlockProgram, TracedStep
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.lane_state import LaneState, Problem
from attnsweep.workloads.engine.layout import Layout
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.gradients.subject import Subject
from attnsweep.workloads.update_rules import UPDATE_RULES

_RATE = 2.0**40
"""The learning rate of the step from which the gradient is read. It is a power of 2, so that dividing by it is exact,
and so large that the digits of the weights do not matter."""


def vmapped_gradients(subject: Subject) -> State:
    """Computes the gradients (L, ...) by name as the `vmap` engine does."""
    leaves = {name: value.detach().requires_grad_() for name, value in subject.weights.items()}
    loss = over_lanes(subject.template, subject.workload.loss)(leaves, subject.buffers, subject.batch)
    gradients = torch.autograd.grad(loss.sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
    return dict(zip(leaves, gradients, strict=True))


def block_gradients(subject: Subject, *, compiled: bool) -> State:
    """Computes the gradients (L, ...) by name as the block engine does, from its program of a step or of a gradient.

    Args:
        subject: The trainings.
        compiled: Whether to run the compiled program, or the same formulas operation by operation.

    Raises:
        NoRuleError: If this shape has neither program.
        NoCompilerError: If `compiled` is set and this machine cannot compile.
    """
    layout = Layout(subject.weights)
    problem = Problem(subject.workload, subject.template, layout, subject.lanes.shared, digest_of(subject.template))
    rate_L = torch.full((len(subject.lanes.trainings),), _RATE, dtype=torch.float64)
    sgd = FirstOrder(UPDATE_RULES["sgd"], Settings.plain(rate_L, n_steps=1))
    lanes = LaneState(problem, sgd, layout.rows(subject.weights), subject.buffers)
    try:
        return layout.views(_gradient_from_step(subject, lanes, compiled=compiled))
    except NoRuleError as no_step:
        try:
            return layout.views(_gradient_from_program(subject, lanes, compiled=compiled))
        except NoRuleError as no_gradient:
            raise NoRuleError(f"for steps: {no_step}; for gradients: {no_gradient}") from no_gradient


def _gradient_from_step(subject: Subject, lanes: LaneState, *, compiled: bool) -> Tensor:
    """Takes one step of gradient descent with a compiled step, and returns the gradients (L, n) that the step used."""
    if subject.lanes.shared.optimizer not in UPDATE_RULES:
        raise NoRuleError("the optimizer uses line searches")
    traced, before = TracedStep.of(lanes, subject.batch), lanes.rows.clone()
    step_and_examples = traced.step, traced.examples
    run = (
        libraries.loaded(libraries.compiled(*step_and_examples))
        if compiled
        else libraries.interpreted(*step_and_examples)
    )
    BlockProgram(traced.blocking, run).advance(lanes, lambda _, __: [subject.batch], 1)
    return (before - lanes.rows) / _RATE


def _gradient_from_program(subject: Subject, lanes: LaneState, *, compiled: bool) -> Tensor:
    """Computes the gradients (L, n) with the compiled program of loss and gradient."""
    graph = gradient_graph(lanes, subject.batch)
    add = adding(graph)
    examples = GradientProgram.examples(graph, lanes, subject.batch)
    run = libraries.loaded(libraries.compiled_gradient(graph, examples)) if compiled else lambda inputs: add(*inputs)
    return GradientProgram(graph.parts, run).descent(lanes.rows, lanes.buffers, subject.batch, None)[1]
