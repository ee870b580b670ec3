"""Fused line searches make the same decisions as PyTorch's `_strong_wolfe`, on wavy functions with kinks and walls.

Axes: L lane.
"""

import pytest
import torch
from torch import Tensor
from torch.optim.lbfgs import _strong_wolfe

from attnsweep.workloads.engine.line_search import ARMIJO, LineSearches, Points

N_LANES = 300
TOLERANCE_CHANGE = 1e-3


def _wiggly(x: Tensor, shape: Tensor) -> Tensor:
    """A function with hills and valleys, and in one of three lanes a kink or a wall; x (2,), shape (4,)."""
    tilt, height, frequency, kind = shape.unbind(-1)
    base = 0.1 * x.square().sum(-1) + tilt * x.sum(-1) + height * torch.sin(frequency[..., None] * x).sum(-1)
    kinked = base + 20 * (x[..., 0] - 1).abs()
    room = torch.where(kind < 0.75, 1.0, 2 - x[..., 0])
    return torch.where(kind < 0.5, base, torch.where(kind < 0.75, kinked, base - room.sqrt()))


def _values(x: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    loss = _wiggly(x, shape)
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    return loss.detach(), gradient


@pytest.mark.slow
@pytest.mark.sample("2")
@pytest.mark.parametrize("most_interpolations", [1, 2, 25])
def test_every_search_ends_where_torch_alone_would(most_interpolations: int) -> None:
    generator = torch.Generator().manual_seed(most_interpolations)
    shape_L4 = torch.rand(N_LANES, 4, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 3.0, 8.0, 1.0])
    x = torch.randn(N_LANES, 2, generator=generator, dtype=torch.float64).clamp(max=1.5)
    first_trial = 10 ** (4 * torch.rand(N_LANES, generator=generator, dtype=torch.float64) - 3)
    loss, gradient = _values(x, shape_L4)
    direction = -gradient
    slope = (gradient * direction).sum(1)

    searches = LineSearches(gradient, TOLERANCE_CHANGE)
    limit = torch.full((N_LANES,), most_interpolations)
    # Twice, so that the second search starts with the state that the first left.
    start, direction_size = Points(torch.zeros_like(loss), loss, slope, gradient), direction.abs().amax(1)
    for _ in range(2):
        searches.begin(torch.ones_like(limit).bool(), first_trial, start, direction_size, limit)
        while searches.is_open.any():
            trial_loss, trial_gradient = _values(x + searches.step_size[:, None] * direction, shape_L4)
            searches.observe(trial_loss, trial_gradient, (trial_gradient * direction).sum(1))

    found = searches.found()
    ended_early = 0
    for lane in range(N_LANES):

        def evaluate(x: Tensor, t: Tensor, d: Tensor, shape: Tensor = shape_L4[lane]) -> tuple[float, Tensor]:
            loss, gradient = _values((x + t * d)[None], shape[None])
            return loss.item(), gradient[0]

        begun = (x[lane], first_trial[lane], direction[lane], loss[lane].item(), gradient[lane], slope[lane])
        tolerances = {"tolerance_change": TOLERANCE_CHANGE, "max_ls": most_interpolations}
        their_loss, their_gradient, step_size, n_evaluations = _strong_wolfe(evaluate, *begun, **tolerances)
        assert n_evaluations == searches.n_evaluations[lane]
        ours = torch.cat([found.at[[lane]], found.loss[[lane]], found.gradient[lane]])
        theirs = torch.cat([torch.as_tensor([step_size, their_loss], dtype=torch.float64), their_gradient])
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9, equal_nan=True)
        ended_early += n_evaluations <= most_interpolations
    assert 0.2 * N_LANES < ended_early < N_LANES or most_interpolations < 25


@pytest.mark.parametrize(("share", "is_taken"), [(0.5, False), (2.0, True)])
def test_a_step_is_taken_that_gains_what_is_asked_for(share: float, is_taken: bool) -> None:
    """A flat function, lower beyond the start by a share of the sufficient decrease."""
    one, yes = torch.ones(1, dtype=torch.float64), torch.tensor([True])
    searches = LineSearches(one[None], TOLERANCE_CHANGE)
    searches.begin(yes, one, Points(0 * one, 0 * one, -one, -one[None]), one, torch.tensor([25]))
    ended = searches.observe(-share * ARMIJO * one, 0 * one[None], 0 * one)
    assert ended.tolist() == [is_taken]
