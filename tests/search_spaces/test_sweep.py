"""Sweeps: equal to their JSON, and clear about a mistake."""

import math
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsweep import Categorical, Conditional, Float, Int, LossQuantile, Rate, Sequential, StuckRate, Sweep, Zip
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.loading import assignments, load_sweep, shipped_names
from attnsweep.search_spaces.numbered_draws import draws_of
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.suggestion import Given, make_sampler, suggest
from attnsweep.search_spaces.sweep import LEARN_NOTHING, Sampler
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.vocabulary import Outcome
from tests.refusals import refused

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
names = st.text("abcdefghij_", min_size=1, max_size=8)
floats = st.builds(
    lambda low, ratio, log: Float(low=low, high=low * ratio, log=log),
    st.floats(1e-300, 1e100),
    st.floats(1, 1e10),
    st.booleans(),
)
ints = st.builds(lambda low, more: Int(low=low, high=low + more), st.integers(-(10**9), 10**9), st.integers(0, 10**9))
categoricals = st.builds(lambda choices: Categorical(choices=tuple(choices)), st.lists(scalars | names, min_size=1))
simple = scalars | names | floats | ints | categoricals
conditionals = st.builds(
    lambda on, among, then, otherwise: Conditional(on=on, among=tuple(among), then=then, otherwise=otherwise),
    names,
    st.lists(scalars | names, min_size=1),
    simple,
    simple,
)
sequential = st.builds(
    Sequential,
    width=st.floats(1e-3, 0.99),
    threshold=st.none() | st.floats(1e-3, 0.99),
    at_most=st.integers(100, 10**6),
    batch=st.integers(1, 100),
)
sweeps = st.builds(
    Sweep,
    name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,79}\Z"),
    workload=st.text(),
    space=st.dictionaries(names, simple | conditionals, max_size=5),
    sampler=st.sampled_from(get_args(Sampler)),
    trials=st.integers(1, 2**31 - 1),
    seconds=st.none() | st.floats(1e-6, 1e9),
    replicates=st.integers(1, 10**6) | sequential,
    seed=st.integers(0, 2**63 - 1),
    objective=st.builds(StuckRate) | st.builds(LossQuantile, quantile=st.floats(0, 1)),
)


@pytest.mark.slow
@given(sweeps)
def test_json_and_back_loses_nothing(sweep: Sweep) -> None:
    again = Sweep.from_json(sweep.to_json())
    assert again == sweep
    assert again.sha256() == sweep.sha256()
    assert {name: type(value) for name, value in again.fixed().items()} == {
        name: type(value) for name, value in sweep.fixed().items()
    }


def _asked(sweep: Sweep, n_trials: int) -> list[dict[str, Scalar]]:
    study = optuna.create_study()
    values = []
    for trial in range(n_trials):
        learns = sweep.sampler not in LEARN_NOTHING
        study.sampler = make_sampler(sweep, trial) if learns else Given(draws_of(sweep).draw(trial)[0])
        values.append(suggest(sweep, study.ask()))
    return values


varied = st.dictionaries(names, floats | ints | categoricals, min_size=2, max_size=4)


@settings(max_examples=30)
@given(varied, st.sampled_from(["random", "tpe", "qmc"]), st.integers(0, 2**32))
def test_a_sweep_and_its_json_ask_the_same_trials(space: dict[str, Any], sampler: Sampler, seed: int) -> None:
    """Samplers draw one parameter after the other: the order of the space decides who gets which random number."""
    sweep = _sweep(space=space, sampler=sampler, seed=seed)
    again = Sweep.from_json(sweep.to_json())
    assert list(again.space) == list(sweep.space)
    assert _asked(again, 3) == _asked(sweep, 3)


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_sweeps_fit_their_workloads(name: str) -> None:
    sweep = load_sweep(name)
    assert sweep.name == name
    assert sweep.description
    # `--trials` and `--replicates` change them.
    numbers = {sweep.trials, most_wanted(sweep.replicates), sweep.trials * most_wanted(sweep.replicates)} - {1, 2}
    assert not numbers & {int(each.replace(",", "")) for each in re.findall(r"\b\d[\d,]*", sweep.description)}
    check_sweep(sweep, load_workload(sweep.workload).parameters)


def _sweep(**fields: Any) -> Sweep:
    plain: dict[str, Any] = {"name": "s", "workload": "category_pairs", "space": {}, "trials": 8}
    return Sweep(**plain | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trials": 0}, "trials"),
        ({"replicates": 0}, "replicates"),
        ({"replicate": 2}, "replicate"),
        ({"sampler": "bo"}, "sampler"),
        ({"name": "../x"}, "name"),
        ({"seconds": float("nan")}, "seconds"),
        ({"space": {"x": {"kind": "flaot"}}}, "space.x"),
        ({"space": {"x": {"kind": "float", "low": 2, "high": 1}}}, "space.x.low"),
        ({"space": {"x": {"kind": "float", "low": 2, "high": math.inf}}}, "space.x.high"),
        ({"space": {"x": {"kind": "categorical", "choices": []}}}, "space.x.choices"),
        ({"objective": "rate"}, "outcome"),
        ({"objective": "stuck"}, "objective"),
        ({"certified_share": 1.5}, "certified_share"),
    ],
)
def test_a_mistake_in_a_sweep_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        _sweep(**fields)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"space": {"init_sigm": 0.1}}, "init_sigm"),
        ({"space": {"init_sigma": Float(low=-1, high=1)}}, "init_sigma"),
        ({"space": {"optimizer": Categorical(choices=("sgd", "lbfg"))}}, "optimizer"),
        ({"space": {"init_sigma": Conditional(on="dtype", among=("float32",), then=0.1)}}, "init_sigma.on"),
        ({"space": {"init_sigma": Float(0.1, 1)}, "sampler": "grid"}, "init_sigma.points"),
        ({"space": {"init_sigma": Float(0.1, 1, points=3)}, "sampler": "grid"}, "trials"),
        ({"objective": Rate("sovled")}, "objective.outcome"),
        ({"space": {"variant": "categories_only", "attention_activation": "softmax"}}, "expectation"),
    ],
)
def test_a_space_that_does_not_fit_its_workload_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_sweep(_sweep(**changes), load_workload("category_pairs").parameters)
    assert str(raised.value).startswith(message)


VARIANTS = Categorical(("positions_only", "solution_1"))
ADAM_OR_SGD = Categorical(("adam", "sgd"))


@pytest.mark.parametrize(
    ("space", "subject"),
    [
        ({"optimizer": "adam", "momentum": 0.9}, "momentum"),
        ({"beta_1": 0.5}, "beta_1"),
        ({"optimizer": "lbfgs", "weight_decay": 0.1}, "weight_decay"),
        ({"optimizer": Categorical(("adam", "adamw")), "momentum": 0.9}, "momentum"),
        ({"optimizer, momentum": Zip((("adam", 0.9), ("adamw", 0.0)))}, "momentum"),
        ({"optimizer": ADAM_OR_SGD, "momentum": Conditional(on="optimizer", among=("adam",), then=0.5)}, "momentum"),
        ({"float32_state": True}, "float32_state"),
        ({"init_sigma": Float(0, 1), "learning_rate": Conditional(on="init_sigma", among=(0.5,), then=1.0)}, ".on"),
        ({"variant": VARIANTS, "skip": Conditional(on="variant", among=("solution_2",), then=False)}, ".among"),
        ({"n_categories": Int(2, 4), "init_sigma": Conditional(on="n_categories", among=(5,), then=0.1)}, ".among"),
    ],
)
def test_a_parameter_without_effect_and_a_condition_that_cannot_hold_are_refused(
    space: dict[str, Any], subject: str
) -> None:
    with pytest.raises(SpecError) as raised:
        check_sweep(_sweep(space=space), load_workload("category_pairs").parameters)
    assert raised.value.subject.endswith(subject)


@pytest.mark.parametrize(
    "space",
    [
        {"optimizer": ADAM_OR_SGD, "momentum": Float(0, 0.9), "beta_1": 0.5},
        {"momentum": 0.9, "weight_decay": 0.1, "gradient_clip_norm": 1.0, "warmup_steps": 3},
        {"optimizer": ADAM_OR_SGD, "momentum": Conditional(on="optimizer", among=("adam",), then=0.1, otherwise=0.5)},
        {
            "variant": VARIANTS,
            "optimizer": Conditional(on="variant", among=("solution_1",), then="adam"),
            "momentum": 0.9,
        },
        {"dtype": Categorical(("bfloat16", "float32")), "float32_state": True},
    ],
)
def test_a_parameter_that_some_trial_reads_is_accepted(space: dict[str, Any]) -> None:
    check_sweep(_sweep(space=space), load_workload("category_pairs").parameters)


@pytest.mark.parametrize(("value", "expected"), [("solution_1", False), ("positions_only", None)])
def test_fixing_what_a_condition_is_on_settles_the_condition(value: str, expected: bool | None) -> None:
    space: dict[str, Any] = {"variant": VARIANTS, "skip": Conditional(on="variant", among=("solution_1",), then=False)}
    fixed = _sweep(space=space).fix({"variant": value})
    assert not fixed.conditional()
    assert fixed.fixed().get("skip") is expected


def test_a_rate_may_be_one_of_an_outcome_that_the_workload_declares() -> None:
    parameters, sweep = load_workload("category_pairs").parameters, _sweep(objective=Rate("memorized"))
    check_sweep(sweep, parameters, {"memorized": Outcome("knows its sample only")})
    with refused("objective.outcome", SpecError):
        check_sweep(sweep, parameters)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def sweep(:\n", "expected valid Python code (invalid syntax); see line 1"),
        ("1/0\n", "got 'ZeroDivisionError: division by zero, in line 1', expected a file that runs"),
        ("x = 1\n", "got 'a file without sweep()'"),
        ("def sweep(): return 3\n", "got 3, expected a function that returns an attnsweep.Sweep; return a Sweep"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(content)
    with pytest.raises(UserError, match=rf"mine\.py.*{re.escape(message)}"):
        load_sweep(str(tmp_path / "mine.py"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("skip=True", True),
        ("skip=false", False),
        ("init_sigma=None", None),
        ("init_sigma=null", None),
        ("n_steps=1e3", 1000),
        ("optimizer=adam", "adam"),
        ('optimizer="None"', "None"),
    ],
)
def test_values_of_the_command_line_are_read(text: str, value: Scalar) -> None:
    [(name, given)] = assignments([text]).items()
    assert (given, type(given)) == (value, float if name == "n_steps" else type(value))


def test_numbers_of_numpy_are_numbers() -> None:
    of_numpy: Any = np
    space: dict[str, Any] = {
        "learning_rate": Categorical(of_numpy.logspace(-3, -1, 3)),
        "init_sigma": Float(of_numpy.float32(0.5), of_numpy.int64(1), points=of_numpy.int32(2)),
        "n_categories": Int(of_numpy.int64(2), of_numpy.uint8(4)),
        "n_steps": of_numpy.int64(9),
        "skip": of_numpy.bool_(True),
        "a, b": Zip(of_numpy.arange(4).reshape(2, 2)),
    }
    sweep = _sweep(
        space=space,
        trials=of_numpy.int64(2),
        seed=of_numpy.uint64(3),
        objective=LossQuantile(quantile=of_numpy.float64(0.5)),
    )
    plain: dict[str, Any] = {
        "learning_rate": Categorical((1e-3, 1e-2, 1e-1)),
        "init_sigma": Float(0.5, 1, points=2),
        "n_categories": Int(2, 4),
        "n_steps": 9,
        "skip": True,
        "a, b": Zip(((0, 1), (2, 3))),
    }
    assert sweep.to_json() == _sweep(space=plain, trials=2, seed=3, objective=LossQuantile()).to_json()
    assert sweep.fix({"n_steps": of_numpy.int64(4)}).to_json() == sweep.fix({"n_steps": 4}).to_json()


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
    with refused("SPEC", UserError):
        load_sweep("quickstrat")
    stored.write_text(load_sweep("quickstart").to_json())
    assert load_sweep(str(stored)) == load_sweep("quickstart")
