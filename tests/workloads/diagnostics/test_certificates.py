"""Kicks and the valley's reset, on trainings with known ends."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.category_pairs.certificates import reset_valley
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.diagnostics.kicks import kick, kick_and_train
from attnsweep.workloads.diagnostics.negative_curvature import smallest_curvature
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.diagnostics.promotion import certify_by_promotion
from attnsweep.workloads.engine.constants import per_lane
from attnsweep.workloads.engine.contract import Batch, Certificate, Lanes, Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.engine.verdicts import Rule, VerdictTable
from attnsweep.workloads.parameters import TrainingParameters, parameter
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


def _planted(orders: list[int], size: float, level: float = 0.0) -> tuple[Objective, State]:
    n = len(orders)
    task = size * Streams(torch.arange(n)).normal("planted", (6,))
    state = {"task": task, "order": torch.tensor(orders).double()}
    return Objective(Planted(6), lambda *given: level + _planted_loss(*given), state, {}), {"x": task.clone()}


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


def test_a_negative_loss_that_comes_back_has_not_escaped() -> None:
    objective, start = _planted([2, 0], 1e-3, level=-2.0)
    kicked = kick_and_train(objective, start, Streams(torch.arange(2)), n_steps=100)
    assert kicked.escaped.tolist() == [True, False]
    assert not kicked.by_heart.any()


def test_only_a_telling_kick_shows_that_a_batch_is_learned_by_heart() -> None:
    """Out of the basin, as out of the saddle, the loss falls, but only a kick as large as the weights leads there."""
    objective, start = _planted([2, 0], 0.03)
    never = Objective(Planted(6), lambda module, _: 0 * next(module.parameters()).sum() + 1, objective.buffers, {})
    kicked = kick_and_train(objective, start, Streams(torch.arange(2)), n_steps=100, judged_by=never)
    assert (kicked.by_heart.tolist(), kicked.escaped.any().item()) == ([True, False], False)
    assert kick_and_train(objective, start, Streams(torch.arange(2)), n_steps=100).smallest.tolist() == [0.01, 1.0]


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
    assert not objective.falls_below(solved, parameters, "sgd", learning_rate, 500).any()
    reset = parameters | {"v_NN": reset_valley(parameters["v_NN"])}
    assert objective.falls_below(solved, reset, "sgd", learning_rate, 500).all()


@dataclass(frozen=True, kw_only=True)
class HillParameters(TrainingParameters):
    tilt: float = parameter(0.0, "slope at x = 1")
    curvature: float = parameter(1.0, "how the hill bends down")
    start: float = parameter(1.0, "the first x")


class Hill(nn.Module):
    tilt: Tensor
    curvature: Tensor

    def __init__(self, parameters: HillParameters) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor([parameters.start], dtype=torch.float64))
        for name in ("tilt", "curvature"):
            setattr(self, name, per_lane(getattr(parameters, name)))


class Hills(Workload[HillParameters]):
    """Loss 1 at the top x = 1 of a hill, from which descent leads to 0; where `curvature` is negative, of a bowl."""

    name, parameters, summary, level_names = "hills", HillParameters, "a hill", ("zero",)
    verdicts = VerdictTable((Rule.solved(), Rule(outcome="degenerate_zero", when="eval_loss >= 0.5")))

    def build(self, parameters: HillParameters) -> nn.Module:
        return Hill(parameters)

    def initial(self, module: nn.Module, lanes: Lanes[HillParameters]) -> State:  # noqa: ARG002
        return {"x": lanes.tensor("start").unsqueeze(1)}

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:  # noqa: ARG002
        assert isinstance(module, Hill)
        away = module.x[0] - 1
        return 1 - torch.tanh(module.tilt * away + module.curvature * away.square())

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002
        assert isinstance(module, Hill)
        return {"zero": torch.ones_like(module.tilt), "solved": torch.full_like(module.tilt, 0.5)}


def _certificates(**values: float | str) -> list[Certificate | None]:
    given = {"learning_rate": 0.25, "n_steps": 60, "dtype": "float32"} | values
    pack = Pack(Hills(), [Training(HillParameters.resolve(given), seed) for seed in range(2)])
    pack.train_to_end()
    assert (pack.result().last("eval_loss") > 0.9).all(), "it is stuck"
    return certify_by_promotion(Hills(), *pack.final_state(np.arange(2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "agrees"),
    [
        # x = 1 in float32 does not see steps of 1e-10; in float64 they grow by half a step.
        ({"tilt": 1e-9}, False),
        # The minimum of a bowl.
        ({"curvature": -1.0, "start": 1.01}, True),
        # On its way: more steps free it in float32 too.
        ({"start": 1.001, "n_steps": 14}, True),
        # float32 rounds the start up and holds it there; float64 goes on from there, but lacks steps from its own.
        ({"start": 1 + 7e-8, "learning_rate": 0.2, "n_steps": 47}, False),
    ],
    ids=["arithmetic", "loss", "steps", "arithmetic, from its end"],
)
def test_promotion_frees_what_only_rounding_holds(values: dict[str, float], agrees: bool) -> None:
    assert _certificates(**values) == [Certificate("promotion", agrees)] * 2


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
