"""The predicted step of leaving the start, against trainings and against quadratic losses."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from attnsweep import defaults
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.diagnostics.escape import predicted_escapes, spectrum, steps_until
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from tests.workloads.escapes import escape_times

PAIRS = CategoryPairs()
LEAVING: Mapping[str, Value] = {"n_categories": 5, "n_positions": 8, "n_steps": 2000, "learning_rate": 0.1}


def trainings(seeds: range, **values: Value) -> list[Training[Any]]:
    return [Training(defaults(PAIRS, **{**LEAVING, **values}), seed) for seed in seeds]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"init_sigma": 1e-4}, 0.03),
        pytest.param({"init_sigma": 1e-3, "variant": "categories_only"}, 0.03, marks=pytest.mark.scale),
        ({"init_sigma": 1e-3, "weight_decay": 0.3}, 0.03),
        pytest.param({"init_sigma": 0.03, "qk": "factored"}, 0.05, marks=pytest.mark.scale),
    ],
)
def test_each_seed_leaves_when_predicted(values: Mapping[str, Value], error: float) -> None:
    several = trainings(range(40, 56), **values)
    parameters = several[0].parameters
    (trained,) = escape_times(PAIRS, parameters, [parameters.init_sigma], range(40, 56), 8000)
    predicted = predicted_escapes(PAIRS, several)
    assert np.abs(predicted / trained - 1).max() < error + 2 / trained.min()


@pytest.mark.parametrize("form", ["merged", "factored"])
def test_a_prediction_from_later_weights_counts_from_there_and_asks_for_the_loss_of_the_start(form: str) -> None:
    several = trainings(range(4), init_sigma=1e-3 if form == "merged" else 0.05, qk=form)
    whole = predicted_escapes(PAIRS, several)
    # Where the loss has fallen by a part of the 1% already.
    for step in (int(whole.min() * 0.5), int(whole.min() * 0.95)):
        pack = Pack(PAIRS, several, extra_probe_steps=[step])
        while pack.step < step:
            pack.advance(step, 1)
        later = predicted_escapes(PAIRS, several, weights=pack.parameters)
        assert np.abs(step + later - whole).max() <= 1 + 0.03 * whole.max()


@pytest.mark.parametrize(
    "values",
    [
        {"optimizer": "adam"},
        {"momentum": 0.9},
        {"learning_rate_schedule": "cosine"},
        {"gradient_clip_norm": 1.0},
        {"intervention": "freeze v_NN 0..5"},
        {"init_sigma": None},
        {"init_sigma": 0.0},
        {"init_sigma": 1.0},
        {"expectation": "sampled"},
        {"attention_activation": "softmax"},
        {"qk": "factored", "weight_decay": 0.1},
        {"learning_rate": 10.0},
    ],
)
def test_no_prediction_without_a_law(values: Mapping[str, Value]) -> None:
    found = predicted_escapes(PAIRS, trainings(range(2), **{"init_sigma": 1e-3, **values}))
    assert np.isnan(found).all()


def test_spectrum_and_steps_are_those_of_gradient_descent_on_a_quadratic_loss() -> None:
    generator = torch.Generator().manual_seed(3)
    eigenvalues = torch.tensor([-2.0, -2.0, -0.7, 0.0, 0.0, 1.5], dtype=torch.float64)
    basis, _ = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=generator))
    hessian = basis * eigenvalues @ basis.T
    delta = 1e-3 * torch.randn(3, 6, dtype=torch.float64, generator=generator)
    nodes, weights = spectrum(lambda vectors: vectors @ hessian, delta)
    assert weights.sum(1) == pytest.approx([1.0] * 3)
    expected = []
    for start in delta:
        step, weight = 0, start
        while weight @ hessian @ weight / 2 > -1.0:
            weight, step = weight - 0.05 * hessian @ weight, step + 1
        expected.append(step)
    squared = (delta**2).sum(1, keepdim=True).numpy()
    found = steps_until(np.ones(3), nodes, 1 - 0.05 * nodes, weights * squared)
    assert found.tolist() == expected
    assert steps_until(np.ones(1), np.array([[1.0]]), np.array([[0.9]]), np.ones((1, 1))).tolist() == [np.inf]
