"""Kicks and the valley's reset, on trainings with known ends."""

import pytest
import torch
from torch import nn

from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.diagnostics.kicks import kick, kick_and_train
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.diagnostics.valley import reset_valley, solves_after_reset
from attnsweep.workloads.engine.first_order import Sgd
from attnsweep.workloads.engine.streams import Streams
from tests.workloads.diagnostics.lanes import Point, system_lanes


def test_a_kick_leads_out_of_a_saddle_of_order_three_and_not_off_a_plateau() -> None:
    task = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).double()

    def loss(module: nn.Module, _: object) -> torch.Tensor:
        assert isinstance(module, Point)
        saddle = (1.0 - module.x.prod()).square()
        plateau = 1.0 + module.x.square().sum()
        return module.task[0] * saddle + module.task[2] * plateau

    objective = Objective(Point(3), loss, {"task": task}, {})
    start = {"x": torch.zeros(2, 3).double()}
    kicked = kick_and_train(objective, start, Streams(torch.arange(2)))
    assert kicked.before.tolist() == [1.0, 1.0]
    assert kicked.escaped.tolist() == [True, False]
    assert kicked.after.tolist() == pytest.approx([0.0, 1.0], abs=1e-6)


def test_a_kick_moves_all_weights_each_lane_its_own_way() -> None:
    start = {"k": torch.zeros(2, 50, 50), "w": torch.ones(2, 2500)}
    kicked = kick(start, Streams(torch.arange(2)), sigma=0.1)
    assert kicked["k"].std().item() == pytest.approx(0.1, rel=0.05)
    assert kicked["w"].mean().item() == pytest.approx(1.0, abs=0.01)
    assert not torch.equal(kicked["k"][0], kicked["k"][1])
    assert not torch.equal(kicked["k"][0].flatten(), kicked["w"][0] - 1.0)


@pytest.mark.slow
def test_the_reset_leads_out_of_the_valley_and_training_on_alone_does_not() -> None:
    N, M = 4, 6
    objective, parameters = system_lanes(PositionsOnly(N, M, softmax=False), 3, sigma=0.05)
    rho = torch.tensor([-2.0, -3.0, -5.0]).double().view(3, 1, 1)
    centred, shift = torch.eye(N) - 1 / N, torch.eye(M, M - 1)
    parameters["v_NN"] += centred + rho / N
    # The best q for v: each column solves A q_ji + B s_i = a [j = i-1] + b.
    s = (N - 1 + M * rho) / (N - 1 + M * rho**2)
    parameters["q_MK"] += ((N - 1) * shift + rho - rho**2 * s) / (N - 1)
    learning_rate = torch.full((3,), 0.02).double()
    solved = 0.05 * (1 - 1 / N) / M * (M - 1)
    _, on = objective.train_on(parameters, Sgd, learning_rate, 500)
    assert (on > solved).all()
    assert solves_after_reset(objective, parameters, Sgd, learning_rate, solved, n_steps=500).all()


def test_a_loss_that_falls_counts_whatever_the_other_lanes_do() -> None:
    """A step of rate 0.5 halves x: from 1e50, its square needs 200 steps to fall to 1e-20. The third lane stands."""

    def loss(module: nn.Module, _: object) -> torch.Tensor:
        assert isinstance(module, Point)
        return module.task[0] * 0.5 * module.x.square().sum() + module.task[1]

    rate, starts = torch.full((3,), 0.5).double(), {"x": torch.tensor([[1.0], [1e50], [1.0]], dtype=torch.float64)}
    task = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()
    together = Objective(Point(1), loss, {"task": task}, {}).falls_below(1e-20, starts, Sgd, rate, 230)
    assert together.tolist() == [True, True, False]
    first, second = ({"x": starts["x"][[lane]]} for lane in (0, 1))
    alone = Objective(Point(1), loss, {"task": task[:1]}, {})
    assert alone.falls_below(1e-20, first, Sgd, rate[:1], 230).tolist() == [True]
    assert alone.falls_below(1e-20, second, Sgd, rate[:1], 99).tolist() == [False]
    assert alone.falls_below(1e-20, second, Sgd, rate[:1], 250).tolist() == [True]


def test_the_reset_is_the_one_of_the_source() -> None:
    v = Streams(torch.arange(2)).normal("v", (5, 5))
    P = torch.full((5, 5), 0.2).double()
    alpha = torch.stack([(each @ (torch.eye(5) - P)).trace() / 4 for each in v])
    torch.testing.assert_close(reset_valley(v), v - v @ P + alpha.view(2, 1, 1) * P)
