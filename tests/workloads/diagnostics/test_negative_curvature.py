"""The smallest curvature, where it is known."""

import math

import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.diagnostics.negative_curvature import hessian_product, smallest_curvature
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.streams import Streams
from tests.workloads.diagnostics.lanes import Point, population_loss, system_lanes


def test_the_spectrum_of_a_quadratic() -> None:
    task = torch.tensor([[-2.0, 1.0, 3.0, 0.0], [4.0, 1.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]]).double()

    def loss(module: nn.Module, _: object) -> Tensor:
        assert isinstance(module, Point)
        return (module.task * module.x.square()).sum() / 2

    objective = Objective(Point(4), loss, {"task": task}, {})
    found = smallest_curvature(objective, {"x": torch.ones(3, 4).double()}, Streams(torch.arange(3)))
    torch.testing.assert_close(found.smallest, torch.tensor([-2.0, 1.0, 0.0]).double(), rtol=0.0, atol=1e-10)
    torch.testing.assert_close(found.largest, torch.tensor([3.0, 4.0, 0.0]).double(), rtol=0.0, atol=1e-10)
    torch.testing.assert_close(found.direction["x"][0].abs(), torch.eye(4).double()[0], rtol=0.0, atol=1e-8)
    assert found.is_negative().tolist() == [True, False, False]


def test_the_zero_of_positions_only_curves_down_at_the_rate_of_escape() -> None:
    N, M = 4, 6
    objective, parameters = system_lanes(PositionsOnly(N, M, softmax=False), 3, sigma=0.0)
    found = smallest_curvature(objective, parameters, Streams(torch.arange(3)))
    K = M - 1
    rate = (2 / N) * math.sqrt(K * ((N - 1 + M) / 2 + math.sqrt(((M - N + 1) / 2) ** 2 + N - 1)))
    assert found.smallest.tolist() == pytest.approx([-rate] * 3, rel=1e-10)
    assert found.is_negative().all()
    assert found.error.max() < 1e-10


def test_lanes_do_not_mix() -> None:
    objective, parameters = system_lanes(PositionsOnly(3, 4, softmax=False), 4, sigma=1.0)
    alone = Objective(PositionsOnly(3, 4, softmax=False).double(), lambda module, _: population_loss(module), {}, {})
    third = {name: value[2:3] for name, value in parameters.items()}
    vector = torch.linspace(-1.0, 1.0, 4 * 21).double().view(4, 21)
    both = hessian_product(objective, parameters, vector)[2:3], hessian_product(alone, third, vector[2:3])
    torch.testing.assert_close(*both)
    found = smallest_curvature(objective, parameters, Streams(torch.arange(4)))
    once = smallest_curvature(alone, third, Streams(torch.arange(2, 3)))
    torch.testing.assert_close(found.smallest[2:3], once.smallest)
