"""The gradients that the engines compute, of all trainings at once. Axes: L lane."""

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
"""The learning rate of a step that is taken to read its gradient: a power of 2, so that division by it is exact, and so
large that the weights' own digits do not matter."""


def vmapped_gradients(subject: Subject) -> State:
    """(L, ...) by name, as the vmapped engine computes them."""
    leaves = {name: value.detach().requires_grad_() for name, value in subject.weights.items()}
    loss = over_lanes(subject.template, subject.workload.loss)(leaves, subject.buffers, subject.batch)
    found = torch.autograd.grad(loss.sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
    return dict(zip(leaves, found, strict=True))


def block_gradients(subject: Subject, *, compiled: bool) -> State:
    """(L, ...) by name, as the block engine computes them: with the program of a step, or else that of a gradient.

    Args:
        subject: The trainings.
        compiled: Whether by the compiled program, or by its formulas, operation by operation.

    Raises:
        NoRuleError: If this shape has neither.
        NoCompilerError: If it is to be compiled and this machine cannot.
    """
    layout = Layout(subject.weights)
    problem = Problem(subject.workload, subject.template, layout, subject.lanes.shared, digest_of(subject.template))
    rate_L = torch.full((len(subject.lanes.trainings),), _RATE, dtype=torch.float64)
    sgd = FirstOrder(UPDATE_RULES["sgd"], Settings.plain(rate_L, n_steps=1))
    lanes = LaneState(problem, sgd, layout.rows(subject.weights), subject.buffers)
    try:
        return layout.views(_of_step(subject, lanes, compiled=compiled))
    except NoRuleError as no_step:
        try:
            return layout.views(_of_gradient(subject, lanes, compiled=compiled))
        except NoRuleError as no_gradient:
            raise NoRuleError(f"{no_step}; {no_gradient}") from no_gradient


def _of_step(subject: Subject, lanes: LaneState, *, compiled: bool) -> Tensor:
    """(L, n) read from one step of gradient descent."""
    if subject.lanes.shared.optimizer not in UPDATE_RULES:
        raise NoRuleError("its optimizer searches along lines")
    traced, before = TracedStep.of(lanes, subject.batch), lanes.rows.clone()
    given = traced.step, traced.examples
    run = libraries.loaded(libraries.compiled(*given)) if compiled else libraries.interpreted(*given)
    BlockProgram(traced.blocking, run).advance(lanes, lambda _, __: [subject.batch], 1)
    return (before - lanes.rows) / _RATE


def _of_gradient(subject: Subject, lanes: LaneState, *, compiled: bool) -> Tensor:
    """(L, n) from the program that optimizers evaluate where steps have none."""
    graph = gradient_graph(lanes, subject.batch)
    add = adding(graph)
    examples = GradientProgram.examples(graph, lanes, subject.batch)
    run = libraries.loaded(libraries.compiled_gradient(graph, examples)) if compiled else lambda inputs: add(*inputs)
    return GradientProgram(graph.parts, run).descent(lanes.rows, lanes.buffers, subject.batch, None)[1]
