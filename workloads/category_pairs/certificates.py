"""Tests of why a category-pairs training is stuck; none for a full model's `marginal`. Axes: L lane, N category.

At a zero of the gradient, or on a plateau, of systems P and C: a direction of negative curvature leads out. In the
valley at infinity of system P, along which the weights grow without end: a reset lets the training solve. At a dead
attention branch of the full models: a direction of negative curvature leads out, or, where second derivatives show
none, a small kick frees the training. What each test proves: docs/notes/2026-11-21-theory.md.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.diagnostics.kicks import kick_and_train
from attnsweep.workloads.diagnostics.negative_curvature import smallest_curvature
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.contract import Batch, Certificate, Lanes
from attnsweep.workloads.engine.functional import parted
from attnsweep.workloads.engine.layout import selected
from attnsweep.workloads.engine.optimizers import State

_SMALL_SHARE = 1e-10
"""A curvature of a full model is negative if below 0 by more than this share of the largest. For a product of m
matrices of size sigma it is only about sigma^(m-2), which float64 still tells from 0."""

RESET_STEPS = 1000
"""Steps after `reset_valley`; most trainings that the valley trapped solve within a few hundred."""


def reset_valley(v_LNN: Tensor) -> Tensor:
    """Moves the value matrix of system P out of the valley at infinity: v P becomes alpha P, where P = 11^t / N
    averages over the N categories.

    For texts of M tokens and v = alpha (I - P) + beta P, the best q reaches the loss ((N-1)/N) (1-rho)^2 / ((N-1) + M
    rho^2), with rho = beta/alpha. It is 0 at rho = 1, and falls towards (1 - 1/N)/M as rho -> -infinity. A barrier lies
    between, so a training that descends below the level 1/N with alpha beta < 0 never solves. The reset sets rho = 1.
    Derivation: docs/notes/2026-11-21-theory.md, the valley at infinity.
    """
    N = v_LNN.shape[1]
    row_means_LN1 = v_LNN.mean(2, keepdim=True)
    trace_L = v_LNN.diagonal(dim1=1, dim2=2).sum(1) - row_means_LN1.sum((1, 2))
    alpha_L = trace_L / (N - 1)
    return v_LNN - row_means_LN1 + alpha_L.view(-1, 1, 1) / N


Loss = Callable[[nn.Module, Batch], Tensor]


def certify(
    module: nn.Module, loss: Loss, lanes: Lanes[CategoryPairsParameters], state: State, outcome: NDArray[np.str_]
) -> list[Certificate | None]:
    """See `Workload.certify`. `loss` is the training loss, exact or on the training's own sample."""
    tests = _TESTS_OF_FULL if lanes.shared.is_full else _TESTS_OF_REDUCED
    certificates: list[Certificate | None] = [None] * len(outcome)
    for label, test in tests.items():
        chosen = np.flatnonzero(outcome == label)
        if chosen.size:
            index = torch.from_numpy(chosen).to(lanes.device)
            new_certificates = test(module, loss, lanes.select(index), selected(state, index))
            for lane, certificate in zip(chosen, new_certificates, strict=True):
                certificates[lane] = certificate
    return certificates


def split(module: nn.Module, loss: Loss, state: State) -> tuple[Objective, State]:
    """The losses as a function of the parameters alone; and the parameters."""
    parameters, buffers = parted(module, state)
    return Objective(module, loss, buffers, {}), parameters


def _curves_down(
    module: nn.Module, loss: Loss, lanes: Lanes[CategoryPairsParameters], state: State, share: float = 1e-6
) -> list[Certificate]:
    objective, parameters = split(module, loss, state)
    negative = smallest_curvature(objective, parameters, lanes.streams).is_negative(share)
    return [Certificate("negative_curvature", is_negative) for is_negative in negative.tolist()]


def _solves_after_reset(
    module: nn.Module, loss: Loss, lanes: Lanes[CategoryPairsParameters], state: State
) -> list[Certificate]:
    objective, parameters = split(module, loss, state)
    shared = lanes.shared
    solved_level = 0.05 * (1 - 1 / shared.n_categories) / shared.n_positions * (shared.n_positions - 1)
    reset = parameters | {"v_NN": reset_valley(parameters["v_NN"])}
    n_steps, rates = max(RESET_STEPS, shared.n_steps), lanes.tensor("learning_rate")
    solves = objective.falls_below(solved_level, reset, shared.optimizer, rates, n_steps)
    return [Certificate("valley_reset", solved) for solved in solves.tolist()]


def _escapes(module: nn.Module, loss: Loss, lanes: Lanes[CategoryPairsParameters], state: State) -> list[Certificate]:
    certificates = _curves_down(module, loss, lanes, state, _SMALL_SHARE)
    undecided = torch.tensor(
        [lane for lane, certificate in enumerate(certificates) if not certificate.agrees], device=lanes.device
    )
    if undecided.numel():
        objective, parameters = split(module, loss, selected(state, undecided))
        kicked = kick_and_train(objective, parameters, lanes.select(undecided).streams)
        for lane, escaped, smallest in zip(
            undecided.tolist(), kicked.escaped.tolist(), kicked.smallest.tolist(), strict=True
        ):
            measured = {} if math.isnan(smallest) else {"freeing_kick": smallest}
            certificates[lane] = Certificate("kick", escaped, measured)
    return certificates


_TESTS_OF_REDUCED = {"degenerate_zero": _curves_down, "marginal": _curves_down, "runaway": _solves_after_reset}
_TESTS_OF_FULL = {"degenerate_zero": _escapes}
