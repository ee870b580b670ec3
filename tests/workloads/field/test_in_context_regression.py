"""The exact loss against drawn sequences, the fixed points, the law of the start, and the order of the directions."""

import numpy as np
import pytest
import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.escape import predicted_escapes
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.field.in_context_regression import (
    IN_CONTEXT_REGRESSION,
    LinearAttentionMatrix,
    gains,
    loss,
    second_moment,
)
from attnsweep.workloads.parameters import Value
from tests.workloads.escapes import escape_times

PROBLEM = IN_CONTEXT_REGRESSION()
VARIANCE = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)
N_CONTEXT = 5


def _matrix(optimum: Tensor, n_directions: int) -> Tensor:
    learned = torch.arange(len(optimum)) >= len(optimum) - n_directions
    return torch.diag(optimum.where(learned, 0.0))


def test_the_loss_is_that_of_sequences() -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x, task, matrix = normal(100_000, N_CONTEXT + 1, 3) * VARIANCE.sqrt(), normal(100_000, 3, 1), normal(3, 3)
    y = x @ task
    context = (x[:, :-1] * y[:, :-1]).mean(1)
    answer = torch.einsum("bi,ij,bj->b", context, matrix, x[:, -1])
    drawn = (y[:, -1, 0] - answer).square().mean()
    assert loss(matrix, VARIANCE, N_CONTEXT).item() == pytest.approx(drawn.item(), rel=0.02)


@pytest.mark.parametrize("n_directions", [1, 2])
def test_a_level_is_the_loss_of_a_fixed_point(n_directions: int) -> None:
    matrix = _matrix(VARIANCE / second_moment(VARIANCE, N_CONTEXT), n_directions)
    values: dict[str, Value] = {"dimension": 3, "n_heads": 3, "n_context": N_CONTEXT, "dtype": "float64"}
    assert loss(matrix, VARIANCE, N_CONTEXT) == pytest.approx(1 - gains(VARIANCE, N_CONTEXT)[3 - n_directions :].sum())
    level = IN_CONTEXT_REGRESSION.own_levels[f"directions_{n_directions}"]({**values, "inputs": VARIANCE})
    assert level.item() == pytest.approx(loss(matrix, VARIANCE, N_CONTEXT).item(), rel=1e-12)
    module = LinearAttentionMatrix(3, 3, "separate", 1, 1.0).double()
    with torch.no_grad():
        root = matrix.diagonal() ** (1 / 3)
        module.value.copy_(root.view(3, 1, 1))
        for each in (module.key, module.query):
            each.copy_(torch.diag(root).unsqueeze(1))
    loss(module(VARIANCE), VARIANCE, N_CONTEXT).backward()
    assert all(each.grad is not None and each.grad.abs().max() < 1e-14 for each in module.parameters())


def test_the_start_is_left_when_predicted() -> None:
    """Most of the start is flat. Its curvature is rounding, of either sign, for which no step is too large."""
    parameters = IN_CONTEXT_REGRESSION.parameters.resolve({"kq": "merged", "init_sigma": 1e-6, "n_steps": 256})
    predicted = predicted_escapes(PROBLEM, [Training(parameters, seed) for seed in range(4)])
    (left,) = escape_times(PROBLEM, parameters, [1e-6], range(4), 256)
    assert np.abs(predicted / left - 1).max() < 0.06
