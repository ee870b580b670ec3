"""First-order rules: each lane follows `torch.optim` run alone, with settings of its own."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from attnsweep.workloads.engine.first_order import Adam, AdamW, FirstOrder, Sgd
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.engine.update_rules import UPDATE_RULES
from attnsweep.workloads.parameters import OPTIMIZERS

N_STEPS = 60
LEARNING_RATES = [1e-3, 1e-2, 3e-2]
NONE = float("nan")

CASES: dict[str, tuple[type[FirstOrder], type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (Sgd, torch.optim.SGD, {}),
    "sgd with momentum": (Sgd, torch.optim.SGD, {"momentum": [0.9, 0.0, 0.5], "weight_decay": [0.0, 0.1, 0.3]}),
    "adam": (Adam, torch.optim.Adam, {}),
    "adam with decay": (Adam, torch.optim.Adam, {"weight_decay": [0.0, 0.1, 0.3]}),
    "adamw": (AdamW, torch.optim.AdamW, {"weight_decay": [0.3, 0.0, 0.1]}),
    "clipped sgd": (Sgd, torch.optim.SGD, {"gradient_clip_norm": [0.1, NONE, 0.5]}),
    "clipped adam": (Adam, torch.optim.Adam, {"gradient_clip_norm": [0.1, 1e-3, NONE]}),
}


def _settings(n_lanes: int, schedule: str = "constant", **values: list[float]) -> Settings:
    plain = {"learning_rate": LEARNING_RATES, "gradient_clip_norm": [NONE] * n_lanes} | values
    names = ("learning_rate", "momentum", "weight_decay", "warmup_steps", "gradient_clip_norm")
    tensors: dict[str, Any] = {
        name: torch.tensor(plain.get(name, [0.0] * n_lanes), dtype=torch.float64) for name in names
    }
    return Settings(learning_rate_schedule=schedule, n_steps=N_STEPS, **tensors)


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
    rule: type[torch.optim.Optimizer],
    start: Mapping[str, Tensor],
    settings: Mapping[str, float],
    schedule: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler] | None = None,
) -> list[Tensor]:
    """The result of plain PyTorch for one lane."""
    parameters = [value.clone().requires_grad_() for value in start.values()]
    others = {name: value for name, value in settings.items() if name != "gradient_clip_norm"}
    make: Callable[..., torch.optim.Optimizer] = rule
    optimizer = make(parameters, **others)
    scheduler = schedule(optimizer) if schedule else None
    largest_norm = settings.get("gradient_clip_norm", NONE)
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        _loss(*parameters).backward()
        if largest_norm == largest_norm:
            torch.nn.utils.clip_grad_norm_(parameters, largest_norm)
        optimizer.step()
        if scheduler:
            scheduler.step()
    return [value.detach() for value in parameters]


@pytest.mark.parametrize("case", CASES)
def test_a_lane_follows_torch_run_alone(case: str) -> None:
    rule, reference, values = CASES[case]
    start, fused = _start(3), _start(3)
    optimizer = rule(_settings(3, **values))
    optimizer.advance(fused, _evaluate, [30], 1000)
    kept = torch.tensor([2, 0])
    optimizer.select(kept)
    fused = {name: value[kept] for name, value in fused.items()}
    optimizer.advance(fused, _evaluate, [N_STEPS], 1000)
    for lane, origin in enumerate(kept.tolist()):
        settings = {"lr": LEARNING_RATES[origin]} | {name: each[origin] for name, each in values.items()}
        own = {name: value[origin] for name, value in start.items()}
        expected = _alone(reference, own, settings)
        for ours, theirs in zip(fused.values(), expected, strict=True):
            torch.testing.assert_close(ours[lane], theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rule", [Sgd, Adam, AdamW])
def test_what_only_neighbours_ask_for_changes_no_bit(rule: type[FirstOrder]) -> None:
    plain, mixed = _start(3), _start(3)
    rule(_settings(3)).advance(plain, _evaluate, [N_STEPS], 1000)
    settings = _settings(
        3,
        momentum=[0.0, 0.9, 0.0],
        weight_decay=[0.0, 0.1, 0.0],
        warmup_steps=[0.0, 20.0, 0.0],
        gradient_clip_norm=[NONE, 0.1, NONE],
    )
    rule(settings).advance(mixed, _evaluate, [N_STEPS], 1000)
    for name, value in plain.items():
        assert torch.equal(value[[0, 2]], mixed[name][[0, 2]])
        assert not torch.equal(value[1], mixed[name][1])


@pytest.mark.parametrize("rule", [(Sgd, torch.optim.SGD), (AdamW, torch.optim.AdamW)])
def test_learning_rates_follow_their_schedule(rule: tuple[type[FirstOrder], type[torch.optim.Optimizer]]) -> None:
    warmup, decay = [0.0, 10.0, 25.0], [0.1] * 3
    for schedule in ("constant", "cosine"):
        fused = _start(3)
        settings = _settings(3, schedule, warmup_steps=warmup, weight_decay=decay)
        rule[0](settings).advance(fused, _evaluate, [N_STEPS], 1000)
        for lane in range(3):

            def torch_schedule(
                optimizer: torch.optim.Optimizer, n_rising: int = int(warmup[lane]), schedule: str = schedule
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
            expected = _alone(rule[1], own, {"lr": LEARNING_RATES[lane], "weight_decay": 0.1}, torch_schedule)
            for ours, theirs in zip(fused.values(), expected, strict=True):
                torch.testing.assert_close(ours[lane], theirs, rtol=1e-12, atol=1e-14)


def test_each_name_has_its_rule() -> None:
    assert {name: rule.__name__.lower() for name, rule in UPDATE_RULES.items()} == {name: name for name in OPTIMIZERS}


def test_steps_stop_where_a_lane_turns_non_finite() -> None:
    start = _start(3)
    optimizer = Sgd(_settings(3, learning_rate=[1e-3, 10.0, 1e-3]))
    optimizer.advance(start, _evaluate, [N_STEPS], 1000)
    assert optimizer.is_finite.tolist() == optimizer.is_running.tolist() == [True, False, True]
    assert 0 < optimizer.steps[1] < 20
    assert optimizer.steps[[0, 2]].tolist() == [N_STEPS, N_STEPS]
