"""Parameters: typed, ranged, and clear about a mistake."""

import pickle

import pytest

from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.errors import SpecError


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "init_sigm",
            0.1,
            "init_sigm: got 0.1, expected a parameter of the workload (init_sigma, .*; did you mean init_sigma?",
        ),
        ("init_sigma", -1.0, "init_sigma: got -1.0, expected a finite number >= 0, or null; it is: standard deviation"),
        ("init_sigma", float("nan"), "init_sigma: got nan, expected a finite number >= 0, or null"),
        ("learning_rate", 0, "learning_rate: got 0, expected a finite number > 0; it is: step size of the optimizer"),
        ("learning_rate", "0.1", "learning_rate: got '0.1', expected a finite number > 0"),
        ("n_steps", 1.5, "n_steps: got 1.5, expected a whole number >= 1 and <= 2.14748e+09"),
        ("n_steps", True, "n_steps: got True, expected a whole number"),
        ("optimizer", "sdg", "optimizer: got 'sdg', expected one of sgd, adam, adamw, lbfgs; it is: update rule"),
        ("stop_when_solved", 1, "stop_when_solved: got 1, expected true or false"),
    ],
)
def test_a_mistake_is_named(name: str, value: object, message: str) -> None:
    with pytest.raises(SpecError) as raised:
        CategoryPairsParameters.resolve({name: value})
    start, _, end = message.partition(".*")
    assert str(raised.value).startswith(start)
    assert str(raised.value).endswith(end) or not end


def test_whole_numbers_are_numbers() -> None:
    resolved = CategoryPairsParameters.resolve({"init_sigma": 1})
    assert (resolved.init_sigma, type(resolved.init_sigma)) == (1.0, float)


def test_null_is_a_value_where_declared() -> None:
    assert CategoryPairsParameters.resolve({"init_sigma": None}).init_sigma is None


def test_only_static_parameters_split_packs() -> None:
    one = CategoryPairsParameters(init_sigma=0.1, learning_rate=0.1)
    assert one.static_key() == CategoryPairsParameters(init_sigma=3.0, learning_rate=1.0).static_key()
    assert one.static_key() != CategoryPairsParameters(n_positions=21).static_key()


def test_errors_survive_the_way_between_processes() -> None:
    error = SpecError("x", given=1, expected="2", fix="write 2")
    assert str(pickle.loads(pickle.dumps(error))) == "x: got 1, expected 2; write 2"
