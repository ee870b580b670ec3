"""Parameters: typed, ranged, and clear about a mistake."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from tests.refusals import refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("init_sigm", 0.1),
        ("init_sigma", -1.0),
        ("init_sigma", float("nan")),
        ("learning_rate", 0),
        ("learning_rate", "0.1"),
        ("n_steps", 1.5),
        ("n_steps", True),
        ("optimizer", "sdg"),
        ("stop_when", "eval_loss < low"),
        ("stop_when", 0.1),
        ("stop_when_solved", 1),
    ],
)
def test_a_mistake_is_named(name: str, value: object) -> None:
    with refused(name, SpecError):
        CategoryPairsParameters.resolve({name: value})


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("n_steps", 1e3, 1000),
        ("n_steps", np.int32(7), 7),
        ("n_steps", np.float64(7), 7),
        ("init_sigma", np.float32(0.5), 0.5),
        ("init_sigma", np.int64(2), 2.0),
        ("skip", np.bool_(True), True),
        ("optimizer", np.str_("adam"), "adam"),
    ],
)
def test_a_number_in_another_type_is_understood(name: str, given: object, value: Value) -> None:
    accepted = CategoryPairsParameters.declared()[name].accept(given)
    assert (accepted, type(accepted)) == (value, type(value))


def test_only_static_parameters_split_packs() -> None:
    one = CategoryPairsParameters(init_sigma=0.1, learning_rate=0.1)
    assert one.static_key() == CategoryPairsParameters(init_sigma=3.0, learning_rate=1.0).static_key()
    assert one.static_key() != CategoryPairsParameters(n_positions=21).static_key()


def test_errors_survive_the_way_between_processes() -> None:
    error = SpecError("x", given=1, expected="2", fix="write 2")
    assert str(pickle.loads(pickle.dumps(error))) == "x: got 1, expected 2; write 2"


def test_what_the_optimizer_does_not_read_is_null() -> None:
    adam = CategoryPairsParameters.resolve({"optimizer": "adam", "momentum": 0.9, "warmup_steps": 3, "beta_2": 0.9})
    effective = adam.effective()
    assert [effective[name] for name in ("momentum", "warmup_steps", "beta_2")] == [None, 3, 0.9]
    assert CategoryPairsParameters.recorded({f"param_{name}": value for name, value in effective.items()}) == replace(
        adam, momentum=0.0
    )
    lbfgs = replace(adam, optimizer="lbfgs", gradient_clip_norm=1.0).effective()
    assert {name for name, value in lbfgs.items() if value is None} >= {"warmup_steps", "gradient_clip_norm", "beta_2"}
    assert CategoryPairsParameters(momentum=0.5).effective()["momentum"] == 0.5
