"""Sweeps: equal to their JSON, and clear about a mistake."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep import Categorical, Conditional, Float, Int, LossQuantile, Rate, StuckRate, Sweep, Zip
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.loading import assignments, load_sweep, shipped_names
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.vocabulary import Outcome
from tests.refusals import refused

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
names = st.text("abcdefghij_", min_size=1, max_size=8)
floats = st.builds(
    lambda low, ratio, log: Float(low=low, high=low * ratio, log=log),
    *(st.floats(1e-300, 1e100), st.floats(1, 1e10), st.booleans()),
)
ints = st.builds(lambda low, more: Int(low=low, high=low + more), st.integers(-(10**9), 10**9), st.integers(0, 10**9))
choices = st.lists(scalars | names, min_size=1).map(tuple)
simple = scalars | names | floats | ints | st.builds(Categorical, choices=choices)
sweeps = st.builds(
    Sweep,
    name=st.just("s"),
    workload=st.text(),
    space=st.dictionaries(
        names, simple | st.builds(Conditional, on=names, among=choices, then=simple, otherwise=simple), max_size=5
    ),
    trials=st.integers(1, 2**31 - 1),
    seed=st.integers(0, 2**63 - 1),
    objective=st.builds(StuckRate) | st.builds(LossQuantile, quantile=st.floats(0, 1)),
)


@pytest.mark.slow
@given(sweeps)
def test_json_and_back_loses_nothing(sweep: Sweep) -> None:
    again = Sweep.from_json(sweep.to_json())
    assert again == sweep
    assert list(again.space) == list(sweep.space)
    assert again.sha256() == sweep.sha256()
    assert {name: type(value) for name, value in again.fixed().items()} == {
        name: type(value) for name, value in sweep.fixed().items()
    }


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_sweeps_fit_their_workloads(name: str) -> None:
    sweep = load_sweep(name)
    assert sweep.name == name
    assert sweep.description
    check_sweep(sweep, load_workload(sweep.workload).parameters)


def _sweep(**fields: Any) -> Sweep:
    plain: dict[str, Any] = {"name": "s", "workload": "category_pairs", "space": {}, "trials": 8}
    return Sweep(**plain | fields)


VARIANTS = Categorical(("positions_only", "solution_1"))
ADAM_OR_SGD = Categorical(("adam", "sgd"))


def test_fixing_what_a_condition_is_on_settles_the_condition() -> None:
    space: dict[str, Any] = {"variant": VARIANTS, "skip": Conditional(on="variant", among=("solution_1",), then=False)}
    for value, expected in (("solution_1", False), ("positions_only", None)):
        assert _sweep(space=space).fix({"variant": value}).fixed().get("skip") is expected
    settings: dict[str, Any] = {"variant": VARIANTS}
    assert "skip" in _sweep(space=space).fix(settings).conditional()


def test_an_intervention_beyond_the_end_of_all_trainings_is_refused() -> None:
    choices = Categorical((None, "kick 0.1 at 30"))
    space: dict[str, Any] = {"intervention": choices, "n_steps": Categorical((10, 40))}
    parameters = load_workload("gpt").parameters
    sweep = Sweep(name="s", workload="gpt", space=space, trials=4)
    check_sweep(sweep, parameters)
    with refused("intervention", SpecError):
        check_sweep(sweep.fix({"n_steps": 10}), parameters)


def test_a_users_file_names_its_sweeps(tmp_path: Path) -> None:
    mine, stored = tmp_path / "mine.py", tmp_path / "sweep.json"
    mine.write_text(
        "from attnsweep import Sweep\n"
        "def sweep():\n"
        "    return Sweep(name='mine', workload='mine.py:Mine', space={}, trials=2)\n"
        "def larger():\n"
        "    return sweep().but(trials=9)\n"
    )
    assert load_sweep(str(mine)).workload == f"{tmp_path}/mine.py:Mine"
    assert load_sweep(f"{mine}:larger") == load_sweep(str(mine)).but(trials=9)
    with refused("mine.py", UserError):
        load_sweep(f"{mine}:missing")
    for content, said in (("def sweep(:", "invalid syntax"), ("1/0", "division by zero"), ("sweep = 3", "got 3")):
        mine.write_text(content)
        with pytest.raises(UserError, match=said):
            load_sweep(str(mine))
    with refused("SPEC", UserError):
        load_sweep("quickstrat")
    stored.write_text(load_sweep("quickstart").to_json())
    assert load_sweep(str(stored)) == load_sweep("quickstart")


ADAM_OR_SGD = Categorical(("adam", "sgd"))


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"trials": 0}, "trials"),
        ({"replicate": 2}, "replicate"),
        ({"name": "../x"}, "name"),
        ({"space": {"x": {"kind": "flaot"}}}, "space.x"),
        ({"space": {"x": {"kind": "float", "low": 2, "high": 1}}}, "space.x.low"),
        ({"objective": "rate"}, "outcome"),
        ({"space": {"init_sigm": 0.1}}, "init_sigm"),
        ({"space": {"optimizer": Categorical(choices=("sgd", "lbfg"))}}, "optimizer"),
        ({"space": {"init_sigma": Conditional(on="dtype", among=("float32",), then=0.1)}}, "init_sigma.on"),
        ({"space": {"init_sigma": Float(0.1, 1)}, "sampler": "grid"}, "init_sigma.points"),
        ({"space": {"init_sigma": Float(0.1, 1, points=3)}, "sampler": "grid"}, "trials"),
        ({"objective": Rate("sovled")}, "objective.outcome"),
        ({"space": {"variant": "categories_only", "attention_activation": "softmax"}}, "expectation"),
        ({"space": {"optimizer": "adam", "momentum": 0.9}}, "momentum"),
        ({"space": {"optimizer, momentum": Zip((("adam", 0.9), ("adamw", 0.0)))}}, "momentum"),
        (
            {"space": {"variant": VARIANTS, "skip": Conditional(on="variant", among=("solution_2",), then=False)}},
            "skip.among",
        ),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], subject: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_sweep(_sweep(**changes), load_workload("category_pairs").parameters)
    assert raised.value.subject.startswith(subject)


def test_a_parameter_that_some_trial_reads_and_an_outcome_of_the_workloads_own_are_accepted() -> None:
    parameters = load_workload("category_pairs").parameters
    momentum = Conditional(on="optimizer", among=("adam",), then=0.1, otherwise=0.5)
    check_sweep(_sweep(space={"optimizer": ADAM_OR_SGD, "momentum": momentum, "beta_1": 0.5}), parameters)
    check_sweep(_sweep(objective=Rate("memorized")), parameters, {"memorized": Outcome("knows its sample only")})


@pytest.mark.parametrize(
    ("text", "value"),
    [("skip=True", True), ("init_sigma=None", None), ("n_steps=1e3", 1000.0), ("optimizer=adam", "adam")],
)
def test_values_of_the_command_line_are_read(text: str, value: Scalar) -> None:
    [given] = assignments([text]).values()
    assert (given, type(given)) == (value, type(value))


def test_numbers_of_numpy_are_numbers() -> None:
    of_numpy: Any = np
    space = {
        "init_sigma": Float(of_numpy.float32(0.5), of_numpy.int64(1)),
        "a, b": Zip(of_numpy.arange(4).reshape(2, 2)),
    }
    plain: dict[str, Any] = {"init_sigma": Float(0.5, 1), "a, b": Zip(((0, 1), (2, 3)))}
    assert _sweep(space=space, trials=of_numpy.int64(2)).to_json() == _sweep(space=plain, trials=2).to_json()
