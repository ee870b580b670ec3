"""Forecasts of escape times against trainings."""

import numpy as np
import pytest

from attnsweep import defaults
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.forecast.forecast import Escape, escape_times, extrapolated, forecast_escapes
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
    expected = "not a scale family: init_sigma is null: the framework's default initialization has no scale"
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
