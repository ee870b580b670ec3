"""Parameters: typed, ranged, and clear about a mistake."""

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest

from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import TrainingParameters, Value, parameter


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "init_sigm",
            0.1,
            "init_sigm: got 0.1, expected a parameter of the workload (init_sigma, .*; did you mean init_sigma?",
        ),
        (
            "init_sigma",
            -1.0,
            "init_sigma: got -1.0, expected a finite number >= 0, or null; meaning: standard deviation",
        ),
        ("init_sigma", float("nan"), "init_sigma: got nan, expected a finite number >= 0, or null"),
        ("learning_rate", 0, "learning_rate: got 0, expected a finite number > 0; meaning: step size of the optimizer"),
        ("learning_rate", "0.1", "learning_rate: got '0.1', expected a finite number > 0"),
        ("n_steps", 1.5, "n_steps: got 1.5, expected a whole number >= 1 and <= 2.14748e+09"),
        ("n_steps", True, "n_steps: got True, expected a whole number"),
        ("optimizer", "sdg", "optimizer: got 'sdg', expected one of sgd, adam, adamw, lbfgs; did you mean sgd?"),
        (
            "stop_when",
            "eval_loss < low",
            "stop_when: got 'eval_loss < low', expected comparisons of a metric with a number, .*",
        ),
        ("stop_when", 0.1, "stop_when: got 0.1, expected a name, or null; meaning: end a training .*"),
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


def test_null_is_a_value_where_declared() -> None:
    assert CategoryPairsParameters.resolve({"init_sigma": None}).init_sigma is None


@pytest.mark.parametrize("text", ["eval_loss<=1e-2", " grad_norm > -.5 and loss < 1"])
def test_a_condition_is_part_of_the_identity(text: str) -> None:
    resolved = CategoryPairsParameters.resolve({"stop_when": text})
    assert resolved.identity()["stop_when"] == text
    assert "stop_when" not in CategoryPairsParameters().identity()


def test_only_static_parameters_split_packs() -> None:
    one = CategoryPairsParameters(init_sigma=0.1, learning_rate=0.1)
    assert one.static_key() == CategoryPairsParameters(init_sigma=3.0, learning_rate=1.0).static_key()
    assert one.static_key() != CategoryPairsParameters(n_positions=21).static_key()


def test_errors_survive_the_way_between_processes() -> None:
    error = SpecError("x", given=1, expected="2", fix="write 2")
    assert str(pickle.loads(pickle.dumps(error))) == "x: got 1, expected 2; write 2"


@dataclass(frozen=True, kw_only=True)
class Grown(TrainingParameters):
    """A workload that has gained two parameters since its first version."""

    width: int = parameter(4, "units")
    depth: int = parameter(1, "layers", since="0.2")
    slope: float | None = parameter(None, "of the units; null = 1", since="0.2")


def test_a_parameter_that_came_later_changes_no_earlier_identity() -> None:
    assert not {"depth", "slope"} & set(Grown(depth=1, slope=None).identity())
    assert Grown(depth=2).identity() == Grown().identity() | {"depth": 2}
    assert Grown(slope=0.0).identity() == Grown().identity() | {"slope": 0.0}


def test_a_retired_parameter_stays_in_the_identity_and_nowhere_else() -> None:
    parameters = CategoryPairsParameters()
    assert "certified_share" not in {*parameters.values(), *parameters.declared()}
    later = {name for name, each in parameters.declared().items() if each.since is not None}
    first = {name: value for name, value in parameters.effective().items() if name not in later}
    assert parameters.identity() == first | {"certified_share": 0.05}
    of_an_old_sweep = CategoryPairsParameters.resolve({"certified_share": 1})
    assert of_an_old_sweep.identity() == first | {"certified_share": 1.0}


def test_rows_of_every_version_are_read() -> None:
    new = {f"param_{name}": value for name, value in Grown(width=5).values().items()}
    assert Grown.recorded(new) == Grown(width=5)
    old = {name: value for name, value in new.items() if name not in ("param_depth", "param_slope")}
    assert Grown.recorded(old | {"param_certified_share": 0.5}) == Grown(width=5, certified_share=0.5)
    beside_newer_ones = old | {"param_depth": None, "param_slope": None}
    assert Grown.recorded(beside_newer_ones) == Grown(width=5)
    assert Grown.recorded(new | {"param_init_sigma": None}) == Grown(width=5, init_sigma=None)


def test_what_the_optimizer_does_not_read_is_null_and_no_part_of_the_identity() -> None:
    adam = CategoryPairsParameters.resolve({"optimizer": "adam", "momentum": 0.9, "warmup_steps": 3, "beta_2": 0.9})
    effective = adam.effective()
    assert [effective[name] for name in ("momentum", "warmup_steps", "beta_2")] == [None, 3, 0.9]
    assert adam.identity() == replace(adam, momentum=0.0).identity()
    assert CategoryPairsParameters.recorded({f"param_{name}": value for name, value in effective.items()}) == replace(
        adam, momentum=0.0
    )
    lbfgs = replace(adam, optimizer="lbfgs", gradient_clip_norm=1.0).effective()
    assert {name for name, value in lbfgs.items() if value is None} >= {"warmup_steps", "gradient_clip_norm", "beta_2"}
    assert CategoryPairsParameters(momentum=0.5).effective()["momentum"] == 0.5
