"""Forecasts of escape times against trainings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attnsweep import defaults
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.engine.contract import Batch, Lanes, Training
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.forecast.forecast import Escape, escape_times, extrapolated, forecast_escapes
from attnsweep.workloads.forecast.orders import NotAScaleFamilyError, norm_threshold, orders
from attnsweep.workloads.forecast.prediction import predicted_escapes, spectrum, steps_until
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.parameters import Value

PAIRS = CategoryPairs()
SEEDS = range(48)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "sigmas"),
    [
        pytest.param({"learning_rate": 0.03}, (0.1, 1e-4), marks=pytest.mark.scale),
        pytest.param({"learning_rate": 0.03, "momentum": 0.5}, (0.1, 1e-4), marks=pytest.mark.scale),
        ({"learning_rate": 0.1, "qk": "factored"}, (0.09, 0.02)),
    ],
)
def test_forecast_is_within_a_tenth_of_the_trained_median(
    values: dict[str, Value], sigmas: tuple[float, float]
) -> None:
    parameters = defaults(PAIRS, n_categories=5, n_positions=8, n_steps=2000, **values)
    found = forecast_escapes(PAIRS, parameters, sigmas, SEEDS)
    assert not found.escapes[1].is_measured
    (trained,) = escape_times(PAIRS, parameters, sigmas[1:], SEEDS, 8000)
    assert found.escapes[1].quantile(0.5) == pytest.approx(np.median(trained), rel=0.1)
    assert np.corrcoef(found.escapes[1].times, trained)[0, 1] > 0.9


def test_without_a_law_every_value_is_trained() -> None:
    parameters = defaults(PAIRS, n_categories=4, n_positions=5, optimizer="adam", n_steps=30)
    found = forecast_escapes(PAIRS, parameters, (0.1, 1e-5), range(4))
    assert all(each.is_measured for each in found.escapes)
    assert found.law == "no law: steps of adam do not shrink with the gradient"


def test_default_initialization_is_trained_and_said_to_have_no_scale() -> None:
    parameters = defaults(PAIRS, n_categories=4, n_positions=5, init_sigma=None, n_steps=30)
    found = forecast_escapes(PAIRS, parameters, (None,), range(4))
    expected = (
        "not a scale family: a forecast needs init_sigma > 0, but init_sigma is null: the framework's default"
        " initialization has no scale"
    )
    assert found.law == expected
    assert found.orders == ()
    assert found.escapes[0].is_measured


def test_trainings_that_do_not_leave_count_as_waiting() -> None:
    parameters = defaults(PAIRS, n_categories=4, n_positions=5, optimizer="adam", learning_rate=1e-6, n_steps=10)
    (found,) = forecast_escapes(PAIRS, parameters, (1e-3,), range(4)).escapes
    assert found.share == 0
    assert found.quantile(0.5) is None


def test_laws() -> None:
    times = np.array([[10.0, 20.0], [15.0, 27.0]])
    pilots = (0.1, 0.1 / np.e)
    assert extrapolated(0, pilots, times, 1e-9).tolist() == [15.0, 27.0]
    assert extrapolated(1, pilots, times, 0.1 / np.e**3) == pytest.approx([27.0, 39.0])
    assert extrapolated(2, pilots, times, pilots[1] / 10) == pytest.approx([150.0, 270.0])
    assert extrapolated(3, pilots, times, pilots[1] / 10) == pytest.approx([1500.0, 2700.0])


def test_pilots_that_do_not_leave_do_not_leave_by_law_either() -> None:
    times = np.array([[10.0, np.inf], [15.0, np.inf]])
    assert extrapolated(1, (0.1, 0.1 / np.e), times, 0.1 / np.e**3) == pytest.approx([25.0, np.inf])


@pytest.mark.slow
def test_pilots_end_when_their_time_is_up() -> None:
    parameters = defaults(PAIRS, n_categories=4, n_positions=5, learning_rate=1e-6, n_steps=4000)
    (times,) = escape_times(PAIRS, parameters, [1e-3], range(4), 4000, seconds=0.0)
    assert np.isnan(times).all()
    left_out = Escape(init_sigma=1e-3, is_measured=True, times=np.array([3.0, np.nan]), n_steps=10)
    assert (left_out.n_left_out, left_out.share, left_out.quantile(0.9)) == (1, 0.5, None)


SMALL = {"n_categories": 4, "n_positions": 5}


@pytest.mark.parametrize(("qk", "order"), [("merged", 1.0), ("factored", 2.0)])
def test_order_counts_the_other_factors(qk: str, order: float) -> None:
    found = orders(PAIRS, defaults(PAIRS, **SMALL, qk=qk), 1e-4, range(3))
    assert [each.order for each in found] == pytest.approx([order] * len(found), abs=1e-4)


@given(seeds=st.lists(st.integers(0, 2**40), min_size=2, max_size=6, unique=True), lane=st.integers(0, 5))
@settings(max_examples=10)
def test_order_depends_neither_on_lane_nor_on_pack(seeds: list[int], lane: int) -> None:
    parameters, seed = defaults(PAIRS, **SMALL, qk="factored"), seeds[lane % len(seeds)]
    alone = orders(PAIRS, parameters, 0.5, [seed])
    among = orders(PAIRS, parameters, 0.5, [seed, seed, *seeds])
    for one, many in zip(alone, among, strict=True):
        assert one.order is not None
        assert many.low is not None
        assert many.high is not None
        assert many.low - 1e-12 <= one.order <= many.high + 1e-12
    twice = orders(PAIRS, parameters, 0.5, [seed] * (lane + 1))
    assert [each.order for each in twice] == pytest.approx([each.order for each in alone], abs=1e-12)


def test_orders_of_a_gpt_below_and_above_the_threshold_of_its_norms() -> None:
    gpt = GPTWorkload()
    parameters = defaults(gpt, layer_norm_eps=1e-8, n_steps=10)
    assert norm_threshold(gpt, parameters, 0) == pytest.approx(1e-4)
    for sigma, expected in ((1e-2, 3.0), (1e-7, 7.0)):
        found = {each.parameter: each.order for each in orders(gpt, parameters, sigma, range(3))}
        assert found["blocks.0.attention.query.weight"] == pytest.approx(expected, abs=0.05)


def test_system_p_has_no_norm() -> None:
    assert norm_threshold(PAIRS, defaults(PAIRS, **SMALL), 0) is None


class Unscaled(CategoryPairs):
    """A workload whose own draw ignores `init_sigma`."""

    def initial(self, module: nn.Module, lanes: Lanes[CategoryPairsParameters]) -> State:
        drawn = super().initial(module, lanes)
        return drawn | {"v_NN": lanes.streams.normal("v", tuple(drawn["v_NN"].shape[1:]))}


class Shifted(CategoryPairs):
    """A workload that adds a constant to a draw."""

    def initial(self, module: nn.Module, lanes: Lanes[CategoryPairsParameters]) -> State:
        return {name: value + 1e-3 for name, value in super().initial(module, lanes).items()}


def test_a_parameter_that_ignores_init_sigma_stays_fixed() -> None:
    found = {each.parameter: each.order for each in orders(Unscaled(), defaults(PAIRS, **SMALL), 1e-4, range(3))}
    assert found["q_MK"] == pytest.approx(0.0, abs=1e-3)
    assert found["v_NN"] == pytest.approx(1.0, abs=1e-3)


def test_a_start_that_is_no_multiple_is_no_scale_family() -> None:
    with pytest.raises(NotAScaleFamilyError, match="initial values of parameter q_MK are not proportional"):
        orders(Shifted(), defaults(PAIRS, **SMALL), 0.1, [0])


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


def test_a_prediction_depends_neither_on_the_lane_nor_on_its_neighbours() -> None:
    several = trainings(range(5), init_sigma=1e-3) + trainings(range(2), init_sigma=3.0, learning_rate=0.01)
    together = predicted_escapes(PAIRS, several)
    alone = np.concatenate([predicted_escapes(PAIRS, [each]) for each in several[::-1]])[::-1]
    assert np.array_equal(together, alone, equal_nan=True)
    assert np.isfinite(together).tolist() == [True] * 5 + [False] * 2
    in_float32 = [replace(each, parameters=replace(each.parameters, dtype="float32")) for each in several]
    assert np.array_equal(predicted_escapes(PAIRS, in_float32), together, equal_nan=True)


def test_a_prediction_is_of_the_start_whatever_became_of_the_weights() -> None:
    several = trainings(range(3), init_sigma=1e-3, n_steps=20)
    pack = Pack(PAIRS, several)
    pack.train_to_end()
    _, ended = pack.final_state(np.arange(3))
    assert np.array_equal(predicted_escapes(PAIRS, several, ended), predicted_escapes(PAIRS, several))


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


class OnlyFloat32(CategoryPairs):
    """A workload whose loss refuses float64."""

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        assert next(module.parameters()).dtype == torch.float32
        return super().loss(module, batch)


def test_code_that_cannot_compute_in_float64_has_no_prediction() -> None:
    assert np.isnan(predicted_escapes(OnlyFloat32(), trainings(range(2), init_sigma=1e-3, dtype="float32"))).all()


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
