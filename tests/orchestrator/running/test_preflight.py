"""Checks before the first training: what cannot be trained, ended or recorded is refused, what looks unwise is said."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

from attnsweep.orchestrator.running.preflight import check_new, check_starts
from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Categorical, Float, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.registry import load_workload
from tests.refusals import refused
from tests.workloads.engine.any_module import AnyModule, AnyParameters

X = torch.ones(2, 4, dtype=torch.float64)


def _spec(workload: str = "any_module", **space: Dimension) -> Sweep:
    return Sweep(name="any", workload=workload, space={"n_steps": 2, **space}, sampler="random", trials=64)


def _with_epsilon(parameters: AnyParameters) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=parameters.gain))


def _with_draws(parameters: AnyParameters) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.RReLU() if parameters.optimizer == "adam" else nn.ReLU())


def test_a_swept_number_that_the_module_keeps_is_refused() -> None:
    workload = AnyModule(_with_epsilon, lambda module: module(X))
    check_starts(_spec(gain=0.5), workload)
    for swept in (Float(0.1, 1.0), Categorical((0.1, 0.2))):
        with refused("1.eps of the module", SpecError):
            check_starts(_spec(gain=swept), workload)


def test_a_loss_that_is_not_one_for_many_trainings_is_refused_in_any_shape() -> None:
    workload = AnyModule(_with_draws, lambda module: nn.functional.linear(X, module[0].weight))  # type: ignore[index]
    check_starts(_spec(optimizer=Categorical(("sgd", "adam"))), workload)
    workload = AnyModule(_with_draws, lambda module: module(X))
    check_starts(_spec(), workload)
    with pytest.raises(SpecError):
        check_starts(_spec(optimizer=Categorical(("sgd", "adam"))), workload)


def test_what_else_the_code_raises_is_left_to_the_rows_unless_no_training_can_begin() -> None:
    def build(parameters: AnyParameters) -> nn.Module:
        if parameters.optimizer == "adam":
            raise ValueError(parameters)
        return nn.Linear(4, 4)

    workload = AnyModule(build, lambda module: module(X))
    check_starts(_spec(optimizer=Categorical(("sgd", "adam"))), workload)
    with pytest.raises(UserError) as raised:
        check_starts(_spec(optimizer="adam"), workload)
    assert raised.value.subject == "any_module"


MISTAKEN = """
import random
import attnsweep as at
import numpy as np
import torch
from torch import nn

GENERATOR = np.random.default_rng(0)


def data(draw, step, batch_size=8):
    x = draw.normal(batch_size, 3)
    return x, x


settings = dict(model=lambda: nn.Linear(3, 3), data=data, loss="mse", defaults=dict(n_steps=7))
problem = at.problem("mistaken", **settings | dict({}))
"""


@pytest.mark.parametrize(
    ("mistake", "subject"),
    [
        ("data=lambda draw: (torch.randn(4, 3), draw.normal(4, 3))", "mistaken.py, line 17"),
        ("data=lambda draw: (draw.normal(4, 3) + GENERATOR.normal(), draw.normal(4, 3))", "data"),
        ("data=lambda draw, step: (draw.normal(4, 3) + ([0.0] * 7)[step], draw.normal(4, 3))", "mistaken.py:problem"),
        ("data=lambda draw: (draw.normal(4, 3), draw.normal(4))", "loss"),
        ("model=lambda: nn.ParameterList([torch.zeros(3)])", "model"),
        ("metrics=dict(noise=lambda output: output.mean() + random.random())", "metric noise"),
        ("levels=dict(noise=lambda output: random.random())", "level noise"),
        ("heads=dict(wrong=lambda weights: weights.mean())", "the attention of Linear"),
        ("solved='accuracy >= 0.9'", "the condition of the outcome solved"),
    ],
)
def test_a_mistake_that_the_first_step_shows_is_refused(mistake: str, subject: str, tmp_path: Path) -> None:
    file = tmp_path / "mistaken.py"
    file.write_text(MISTAKEN.replace("dict({})", f"dict({mistake})"))
    with pytest.raises(UserError) as raised:
        run_sweep(_spec(f"{file}:problem", n_steps=7), tmp_path / "sweep", Resources(local=True))
    assert raised.value.subject == subject
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("text", "subject"), [("clamp 5:0 none 0..", "intervention"), ("freeze attention.querry 0..1", "intervention")]
)
def test_an_intervention_in_what_the_model_does_not_have_is_refused(text: str, subject: str) -> None:
    space: dict[str, Dimension] = {"d_model": 4, "batch_size": 2, "eval_batch_size": 2, "n_tokens": 4}
    spec = _spec("gpt", **space, intervention=Categorical((None, text)))
    with refused(subject, SpecError):
        check_starts(spec, load_workload("gpt"))


@pytest.mark.parametrize(
    ("stop_when", "is_known"),
    [
        ("eval_los < 1", False),
        (Categorical((None, "loss < 1", "eval_los < 1")), False),
        (None, True),
        (Categorical((None, "loss < 1")), True),
    ],
)
def test_an_unknown_metric_is_refused(stop_when: Dimension, *, is_known: bool) -> None:
    space = {"stop_when": stop_when, "n_categories": 3, "n_positions": 4}
    sweep = Sweep(name="s", workload="category_pairs", space=space, sampler="random", trials=8)
    with nullcontext() if is_known else refused("stop_when", SpecError):
        check_new(sweep, CategoryPairs())
