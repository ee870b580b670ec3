"""Kicks and the valley's reset, on trainings with known ends."""

import pytest
import torch
from torch import nn

from attnsweep.workloads.category_pairs.certificates import split
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.diagnostics.kicks import kick, kick_and_train
from attnsweep.workloads.diagnostics.negative_curvature import smallest_curvature
from attnsweep.workloads.diagnostics.objective import Objective, reset_valley, solves_after_reset
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams
from tests.workloads.diagnostics.lanes import Point, system_lanes


class Planted(Point):
    """A point with weights `task`, at a saddle of order m (`order` = m), or at a strict minimum (`order` = 0)."""

    order: torch.Tensor

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.register_buffer("order", torch.zeros(()).double())


def _planted_loss(module: nn.Module, _: object) -> torch.Tensor:
    """1 at the planted point. Saddles lead to 0 where the product of the first m moves is 1. The minimum has curvature
    20, a barrier at a distance of 0.03, and behind it a loss of 0.1."""
    assert isinstance(module, Planted)
    move = module.x - module.task
    saddles = [(1 - move[:m].prod()).square() * (module.order == m) for m in (2, 3, 4)]
    basin = torch.exp(-move.square().sum() / 0.03**2)
    minimum = 1 + 10 * move.square().sum() * basin - 0.9 * (1 - basin).pow(8)
    return torch.stack(saddles).sum() + minimum * (module.order == 0)


def _planted(orders: list[int], size: float) -> tuple[Objective, State]:
    n = len(orders)
    task = size * Streams(torch.arange(n)).normal("planted", (6,))
    state = {"task": task, "order": torch.tensor(orders).double()}
    return Objective(Planted(6), _planted_loss, state, {}), {"x": task.clone()}


@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param(1e-4, marks=pytest.mark.scale), 1e-3])
def test_small_kicks_lead_out_of_saddles_of_any_order_and_not_out_of_a_strict_minimum(size: float) -> None:
    objective, start = _planted([2, 3, 4, 0], size)
    streams = Streams(torch.arange(4))
    curvature = smallest_curvature(objective, start, streams)
    assert curvature.is_negative().tolist() == [True, False, False, False]
    assert curvature.smallest[3].item() == pytest.approx(20.0)
    kicked = kick_and_train(objective, start, streams)
    assert kicked.before.tolist() == [1.0] * 4
    assert kicked.escaped.tolist() == [True, True, True, False]
    assert kicked.smallest[:3].tolist() == [0.01] * 3
    assert kicked.smallest[3].isnan()
    assert (kicked.after[:3] < 1e-6).all()


def test_a_kick_as_large_as_the_weights_that_frees_a_minimum_is_reported_and_does_not_count() -> None:
    objective, start = _planted([0], 0.03)
    kicked = kick_and_train(objective, start, Streams(torch.arange(1)))
    assert kicked.smallest.tolist() == [1.0]
    assert kicked.escaped.tolist() == [False]


def test_a_plateau_that_rises_on_all_sides_is_left_by_no_kick() -> None:
    def loss(module: nn.Module, _: object) -> torch.Tensor:
        assert isinstance(module, Point)
        return 1.0 + module.x.square().sum()

    objective = Objective(Point(3), loss, {"task": torch.zeros(2, 3).double()}, {})
    kicked = kick_and_train(objective, {"x": torch.zeros(2, 3).double()}, Streams(torch.arange(2)))
    assert kicked.smallest.isnan().all()
    assert kicked.after.tolist() == pytest.approx([1.0, 1.0], abs=1e-6)


def test_a_kick_moves_all_weights_in_proportion_to_their_size_each_lane_its_own_way() -> None:
    start = {"k": torch.full((2, 50, 50), 1e-3), "w": torch.ones(2, 2500), "b": torch.zeros(2, 2500)}
    kicked = kick(start, Streams(torch.arange(2)), 0.1)
    assert (kicked["k"] - start["k"]).std().item() == pytest.approx(1e-4, rel=0.05)
    assert (kicked["w"] - start["w"]).std().item() == pytest.approx(0.1, rel=0.05)
    assert kicked["b"].std().item() == pytest.approx(0.1 / 3**0.5, rel=0.05)
    assert not torch.equal(kicked["k"][0], kicked["k"][1])
    assert not torch.equal(kicked["k"][0].flatten(), kicked["w"][0])


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
    _, on = objective.train_on(parameters, "sgd", learning_rate, 500)
    assert (on > solved).all()
    assert solves_after_reset(objective, parameters, "sgd", learning_rate, solved, n_steps=500).all()


def test_a_loss_that_falls_counts_whatever_the_other_lanes_do() -> None:
    """A step of rate 0.5 halves x: from 1e50, its square needs 200 steps to fall to 1e-20. The third lane stands."""

    def loss(module: nn.Module, _: object) -> torch.Tensor:
        assert isinstance(module, Point)
        return module.task[0] * 0.5 * module.x.square().sum() + module.task[1]

    rate, starts = torch.full((3,), 0.5).double(), {"x": torch.tensor([[1.0], [1e50], [1.0]], dtype=torch.float64)}
    task = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()
    together = Objective(Point(1), loss, {"task": task}, {}).falls_below(1e-20, starts, "sgd", rate, 230)
    assert together.tolist() == [True, True, False]
    first, second = ({"x": starts["x"][[lane]]} for lane in (0, 1))
    alone = Objective(Point(1), loss, {"task": task[:1]}, {})
    assert alone.falls_below(1e-20, first, "sgd", rate[:1], 230).tolist() == [True]
    assert alone.falls_below(1e-20, second, "sgd", rate[:1], 99).tolist() == [False]
    assert alone.falls_below(1e-20, second, "sgd", rate[:1], 250).tolist() == [True]


def test_the_reset_is_the_one_of_the_source() -> None:
    v = Streams(torch.arange(2)).normal("v", (5, 5))
    P = torch.full((5, 5), 0.2).double()
    alpha = torch.stack([(each @ (torch.eye(5) - P)).trace() / 4 for each in v])
    torch.testing.assert_close(reset_valley(v), v - v @ P + alpha.view(2, 1, 1) * P)


def test_weights_are_examined_in_the_order_of_the_module() -> None:
    """The first direction of Lanczos is drawn for all weights in one row: a certificate would depend on their order."""
    module = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))
    names = [name for name, _ in module.named_parameters()]
    state = {name: torch.zeros(1, 2) for name in reversed([*names, "buffer"])}
    objective, parameters = split(module, lambda *_: torch.zeros(()), state)
    assert [*parameters] == names
    assert [*objective.buffers] == ["buffer"]
