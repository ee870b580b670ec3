"""First-order rules: each lane follows `torch.optim` run alone, with settings of its own."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.captured import Graphs
from attnsweep.workloads.engine.compiling.programs import Programs
from attnsweep.workloads.engine.executors import Executors
from attnsweep.workloads.engine.lane_state import optimizer_named
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.update_rules import UPDATE_RULES, Hyperparameters
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of
from tests.workloads.engine.recorded_graph import RecordedGraph

N_STEPS = 60
LEARNING_RATES = [1e-3, 1e-2, 3e-2]
REFERENCES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}

CASES: dict[str, tuple[str, dict[str, list[Any]]]] = {
    "sgd": ("sgd", {}),
    "sgd with momentum": ("sgd", {"momentum": [0.9, 0.0, 0.5], "weight_decay": [0.0, 0.1, 0.3]}),
    "adam": ("adam", {}),
    "adam with decay": ("adam", {"weight_decay": [0.0, 0.1, 0.3]}),
    "adam with averages of its own": (
        "adam",
        {"beta_1": [0.9, 0.0, 0.6], "beta_2": [0.98, 0.999, 0.98], "adam_eps": [1e-8, 1e-3, 1e-1]},
    ),
    "adamw": ("adamw", {"weight_decay": [0.3, 0.0, 0.1]}),
    "adamw with averages of its own": ("adamw", {"beta_2": [0.0, 0.999, 0.9], "weight_decay": [0.3, 0.0, 0.1]}),
    "clipped sgd": ("sgd", {"gradient_clip_norm": [0.1, None, 0.5]}),
    "clipped adam": ("adam", {"gradient_clip_norm": [0.1, 1e-3, None]}),
}


def _settings(**values: list[Any]) -> Settings:
    """Three lanes with these hyperparameters, and the defaults of all else."""
    of_lanes = {"learning_rate": LEARNING_RATES} | values
    lanes = [dict(zip(of_lanes, each, strict=True)) for each in zip(*of_lanes.values(), strict=True)]
    return Settings([Hyperparameters(**lane) for lane in lanes], N_STEPS, torch.float64)


def _loss(x: Tensor, y: Tensor) -> Tensor:
    return ((x[1:] - x[:-1] ** 2) ** 2 + 0.1 * (1 - x[:-1]) ** 2).sum() + (x.sum() - y).square().sum()


def _evaluate(parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    loss = torch.stack([_loss(x, y) for x, y in zip(leaves["x"], leaves["y"], strict=True)])
    gradients = torch.autograd.grad(loss.sum(), list(leaves.values()))
    return loss.detach(), dict(zip(leaves, gradients, strict=True))


def _start(n_lanes: int) -> State:
    values = torch.linspace(-0.5, 0.5, 7 * n_lanes, dtype=torch.float64).reshape(n_lanes, 7)
    return {"x": values[:, :5].clone(), "y": values[:, 5:].clone()}


def _alone(
    rule: str,
    start: Mapping[str, Tensor],
    values: Mapping[str, Any],
    schedule: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler] | None = None,
) -> list[Tensor]:
    """The result of plain PyTorch for one lane."""
    parameters = [value.clone().requires_grad_() for value in start.values()]
    own = Hyperparameters(optimizer=rule, **values)
    more = {"momentum": own.momentum} if rule == "sgd" else {"betas": (own.beta_1, own.beta_2), "eps": own.adam_eps}
    optimizer = REFERENCES[rule](parameters, lr=own.learning_rate, weight_decay=own.weight_decay, **more)
    scheduler = schedule(optimizer) if schedule else None
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        _loss(*parameters).backward()
        if own.gradient_clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, own.gradient_clip_norm)
        optimizer.step()
        if scheduler:
            scheduler.step()
    return [value.detach() for value in parameters]


def _trained(rule: str, **values: list[Any]) -> State:
    found = _start(3)
    optimizer_named(rule, _settings(**values)).advance(found, _evaluate, N_STEPS, 1000)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_lane_follows_torch_run_alone(case: str) -> None:
    rule, values = CASES[case]
    start, fused = _start(3), _start(3)
    optimizer = optimizer_named(rule, _settings(**values))
    optimizer.advance(fused, _evaluate, 30, 1000)
    kept = torch.tensor([2, 0])
    optimizer.select(kept)
    fused = {name: value[kept] for name, value in fused.items()}
    optimizer.advance(fused, _evaluate, N_STEPS, 1000)
    for lane, origin in enumerate(kept.tolist()):
        of_lane = {"learning_rate": LEARNING_RATES[origin]} | {name: each[origin] for name, each in values.items()}
        own = {name: value[origin] for name, value in start.items()}
        expected = _alone(rule, own, of_lane)
        for ours, theirs in zip(fused.values(), expected, strict=True):
            torch.testing.assert_close(ours[lane], theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rule", UPDATE_RULES)
def test_what_only_neighbours_ask_for_changes_no_bit(rule: str) -> None:
    plain = _trained(rule)
    mixed = _trained(
        rule,
        momentum=[0.0, 0.9, 0.0],
        weight_decay=[0.0, 0.1, 0.0],
        warmup_steps=[0, 20, 0],
        learning_rate_schedule=["constant", "cosine", "constant"],
        gradient_clip_norm=[None, 0.1, None],
        beta_1=[0.9, 0.8, 0.9],
        beta_2=[0.999, 0.98, 0.999],
        adam_eps=[1e-8, 1e-6, 1e-8],
    )
    for name, value in plain.items():
        assert torch.equal(value[[0, 2]], mixed[name][[0, 2]])
        assert not torch.equal(value[1], mixed[name][1])


@pytest.mark.parametrize("rule", ["sgd", "adamw"])
def test_learning_rates_follow_their_schedule(rule: str) -> None:
    warmup = [0, 10, 25]
    for schedules in (["constant"] * 3, ["cosine"] * 3, ["constant", "cosine", "constant"]):
        fused = _trained(rule, learning_rate_schedule=schedules, warmup_steps=warmup, weight_decay=[0.1] * 3)
        for lane in range(3):

            def torch_schedule(
                optimizer: torch.optim.Optimizer, n_rising: int = warmup[lane], schedule: str = schedules[lane]
            ) -> torch.optim.lr_scheduler.LRScheduler:
                schedulers = torch.optim.lr_scheduler
                after: torch.optim.lr_scheduler.LRScheduler = schedulers.CosineAnnealingLR(
                    optimizer, N_STEPS - n_rising
                )
                if schedule == "constant":
                    after = schedulers.ConstantLR(optimizer, 1.0)
                if not n_rising:
                    return after
                rise = schedulers.LinearLR(optimizer, 1 / n_rising, total_iters=n_rising - 1)
                return schedulers.SequentialLR(optimizer, [rise, after], [n_rising])

            own = {name: value[lane] for name, value in _start(3).items()}
            values = {"learning_rate": LEARNING_RATES[lane], "weight_decay": 0.1}
            for ours, theirs in zip(fused.values(), _alone(rule, own, values, torch_schedule), strict=True):
                torch.testing.assert_close(ours[lane], theirs, rtol=1e-12, atol=1e-14)


class Unused(nn.Module):
    """With a layer that the loss does not use, and one that it uses with the factor 0."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.spare, self.silent = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self) -> Tensor:
        x = torch.linspace(-1.0, 1.0, 6, dtype=self.line.weight.dtype).view(2, 3)
        answer: Tensor = self.line(x) + 0 * self.silent(x)
        return answer


@pytest.mark.parametrize(
    ("rule", "programs"),
    [
        *[(rule, lambda: None) for rule in REFERENCES],
        *[(rule, lambda: Graphs(RecordedGraph, n_steps=4)) for rule in REFERENCES],
        ("adamw", Programs),
    ],
)
def test_what_the_loss_does_not_use_does_not_decay(rule: str, programs: Callable[[], Executors | None]) -> None:
    n_steps = 8
    given: dict[str, Any] = {"learning_rate": 0.05, "weight_decay": 0.3}
    settings = AnyParameters(optimizer=rule, n_steps=n_steps, init_sigma=None, stop_when_solved=False, **given)
    trainings = lanes_of(settings, settings).trainings
    pack = Pack(AnyModule(lambda _: Unused()), trainings, programs=programs())
    start = pack.final_state(np.arange(2))[1]
    pack.train_to_end()
    ends = pack.final_state(np.arange(2))[1]
    for lane in range(2):
        module = Unused().double()
        module.load_state_dict({name: value[lane] for name, value in start.items()})
        optimizer = REFERENCES[rule](module.parameters(), lr=0.05, weight_decay=0.3)
        for _ in range(n_steps):
            optimizer.zero_grad()
            (1 + module()).square().mean().backward()
            optimizer.step()
        for name, value in module.named_parameters():
            torch.testing.assert_close(ends[name][lane], value.detach(), rtol=1e-10, atol=1e-12)
        assert torch.equal(ends["spare.weight"][lane], start["spare.weight"][lane])


def test_steps_stop_where_a_lane_turns_non_finite() -> None:
    start = _start(3)
    optimizer = optimizer_named("sgd", _settings(learning_rate=[1e-3, 10.0, 1e-3]))
    optimizer.advance(start, _evaluate, N_STEPS, 1000)
    assert optimizer.is_finite.tolist() == optimizer.is_running.tolist() == [True, False, True]
    assert 0 < optimizer.steps[1] < 20
    assert optimizer.steps[[0, 2]].tolist() == [N_STEPS, N_STEPS]
