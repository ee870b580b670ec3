"""Tests of why a category-pairs training is stuck; each label has its own test. Axes: L lane.

A zero or a reference level of the reduced systems: the test finds a direction of negative curvature that leads out of
it. The valley at infinity of system P: the training solves once a reset takes it out of the valley. A dead attention
branch of the full models: a kick leads out of it. Second derivatives show no way out of that zero, so the kick does not
prove a saddle (docs/zeros.md).
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.diagnostics.kicks import kick_and_train
from attnsweep.workloads.diagnostics.negative_curvature import smallest_curvature
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.diagnostics.valley import RESET_STEPS, solves_after_reset
from attnsweep.workloads.engine.contract import Batch, Certificate, Lanes
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.update_rules import UPDATE_RULES

Loss = Callable[[nn.Module, Batch], Tensor]


def certify(
    module: nn.Module,
    loss: Loss,
    lanes: Lanes[CategoryPairsParameters],
    state: State,
    outcome: NDArray[np.str_],
) -> list[Certificate | None]:
    """A certificate for each of L stuck trainings, `None` for labels without a test.

    Args:
        module: The module of ONE training.
        loss: The training loss, exact or on the training's own sample.
        lanes: The trainings.
        state: Their parameters and buffers where they ended, (L, ...) by name.
        outcome: (L,) their outcomes.
    """
    tests = _TESTS_OF_FULL if lanes.shared.is_full else _TESTS_OF_REDUCED
    certificates: list[Certificate | None] = [None] * len(outcome)
    for label, (name, test) in tests.items():
        chosen = np.flatnonzero(outcome == label)
        if chosen.size:
            index = torch.from_numpy(chosen).to(lanes.device)
            rows = {key: value[index] for key, value in state.items()}
            agrees = test(module, loss, lanes.select(index), rows).cpu().numpy()
            for position, holds in zip(chosen, agrees, strict=True):
                certificates[position] = Certificate(name, bool(holds))
    return certificates


def _split(module: nn.Module, loss: Loss, state: State) -> tuple[Objective, State]:
    names = {name for name, _ in module.named_parameters()}
    buffers = {name: value for name, value in state.items() if name not in names}
    return Objective(module, loss, buffers, {}), {name: state[name] for name in names}


def _curves_down(module: nn.Module, loss: Loss, lanes: Lanes[CategoryPairsParameters], state: State) -> Tensor:
    objective, parameters = _split(module, loss, state)
    return smallest_curvature(objective, parameters, lanes.streams).is_negative()


def _solves_after_reset(module: nn.Module, loss: Loss, lanes: Lanes[CategoryPairsParameters], state: State) -> Tensor:
    objective, parameters = _split(module, loss, state)
    shared = lanes.shared
    solved_level = 0.05 * (1 - 1 / shared.n_categories) / shared.n_positions * (shared.n_positions - 1)
    return solves_after_reset(
        objective,
        parameters,
        UPDATE_RULES[shared.optimizer],
        lanes.tensor("learning_rate"),
        solved_level,
        n_steps=max(RESET_STEPS, shared.n_steps),
    )


def _escapes_when_kicked(module: nn.Module, loss: Loss, lanes: Lanes[CategoryPairsParameters], state: State) -> Tensor:
    objective, parameters = _split(module, loss, state)
    return kick_and_train(objective, parameters, lanes.streams).escaped


_TESTS_OF_REDUCED = {
    "degenerate_zero": ("negative_curvature", _curves_down),
    "marginal": ("negative_curvature", _curves_down),
    "runaway": ("valley_reset", _solves_after_reset),
}
_TESTS_OF_FULL = {"degenerate_zero": ("kick", _escapes_when_kicked)}
