"""Checks that a step of plain gradient descent changes conserved quantities as the gradient predicts. Axes: L lane."""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from attnsweep.workloads.engine.first_order import FirstOrder, take_step
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.gradients.engines import vmapped_gradients
from attnsweep.workloads.gradients.finding import Finding, compared
from attnsweep.workloads.gradients.subject import Subject
from attnsweep.workloads.identities.identity import Conserved, Point, largest
from attnsweep.workloads.update_rules import UPDATE_RULES

_MOVED = (
    "a step of gradient descent changes it by another amount: the engine's gradient is not that of the training alone, "
    "an identity fails, or the update is not plain descent"
)


def check_sgd_step(subject: Subject, points: Sequence[Point]) -> Iterator[Finding]:
    """Checks that a step of gradient descent changes conserved quantities as predicted: one finding per quantity, of
    its worst case.

    The engine takes one step, at most as long as the norm of the weights. Errors are relative to the size of the
    weights, and those of charges to its square.
    """
    size = [_norm(at.weights) for at in points]
    rate = [size[lane] / at.scale for lane, at in enumerate(points)]
    after = _stepped(subject, rate)
    errors: dict[str, list[float]] = {}
    for lane, at in enumerate(points):
        training = subject.lanes.trainings[lane]
        old, new, gradients = (
            {name: value / size[lane] for name, value in state.items()}
            for state in (at.weights, {name: value[lane] for name, value in after.items()}, at.gradients)
        )
        for conserved in subject.workload.identities(training.parameters):
            if isinstance(conserved, Conserved):
                predicted = conserved.conserved(old) + rate[lane] ** 2 * conserved.moved(gradients)
                errors.setdefault(conserved.quantity, []).append(largest(conserved.conserved(new) - predicted))
    for quantity, errors_of_quantity in errors.items():
        yield compared("sgd step", "what the gradient predicts", quantity, subject.where, errors_of_quantity, _MOVED)


def _stepped(subject: Subject, rate: Sequence[float]) -> State:
    """Takes one step of the engine's gradient descent at the learning rates (L,). Returns the weights (L, ...)."""
    rate_L = torch.tensor(rate, dtype=torch.float64)
    sgd = FirstOrder(UPDATE_RULES["sgd"], Settings.plain(rate_L, n_steps=1))
    weights = {name: value.clone() for name, value in subject.weights.items()}
    evaluated = torch.zeros_like(rate_L), vmapped_gradients(subject)
    take_step(sgd.rule, weights, sgd.state_of(weights), evaluated, sgd.constants | sgd.ahead(range(1))[0])
    return weights


def _norm(state: Mapping[str, Tensor]) -> float:
    """Returns the Euclidean norm over all tensors, or the smallest positive number if the norm is 0."""
    return max(math.hypot(*(value.norm().item() for value in state.values())), torch.finfo(torch.float64).tiny)
