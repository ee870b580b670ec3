"""Ranges and choices by position, as in Optuna's `suggest_*`, and parameters that vary together: `Zip`."""

from collections.abc import Callable
from typing import Any, get_args

import optuna
import pytest
from pydantic import TypeAdapter

from attnsweep import Categorical, Float, Int, Sweep, Zip
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.search_spaces.numbered_draws import RandomDraws, draws_of
from attnsweep.search_spaces.suggestion import Given, make_sampler, suggest, values_of
from attnsweep.search_spaces.sweep import LEARN_NOTHING, Sampler
from attnsweep.workloads.errors import SpecError

DIMENSIONS: TypeAdapter[Any] = TypeAdapter(Dimension)


@pytest.mark.parametrize(
    ("by_position", "by_name"),
    [
        (Float(1e-3, 1.0, log=True), Float(low=1e-3, high=1.0, log=True)),
        (Int(4, high=12, points=3), Int(low=4, high=12, points=3)),
        (Categorical(("a", None, 1)), Categorical(choices=("a", None, 1))),
    ],
)
def test_a_dimension_by_position_is_the_one_by_name(by_position: Float | Int | Categorical, by_name: object) -> None:
    assert by_position == by_name
    assert DIMENSIONS.validate_json(by_position.model_dump_json()) == by_position


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Int(1, 2, low=0), "Int"),  # type: ignore[misc]
        (lambda: Categorical("a", "b"), "Categorical"),  # type: ignore[call-arg,arg-type]
        (lambda: Float(1), "high"),  # type: ignore[call-arg]
        (lambda: Float(1, 2, step=3), "step"),  # type: ignore[call-arg]
        (lambda: Int(1.5, 2), "low"),  # type: ignore[arg-type]
        (lambda: Float(2, 1), "low"),
        (lambda: Float(0, 1, log=True), "low"),
        (lambda: DIMENSIONS.validate_json('{"kind":"float","low":1}'), "high"),
        (lambda: DIMENSIONS.validate_json('{"kind":"int","low":1,"high":2,"stop":3}'), "stop"),
    ],
)
def test_a_mistake_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        make()
    assert str(raised.value).startswith(message)


def test_zipped_parameters_vary_together_and_keep_their_types() -> None:
    space: dict[str, Dimension] = {
        "learning_rate": Float(1e-3, 1e-1, log=True),
        "d_model, n_heads": Zip(((16, None), (32, 0.1), (8, "x"))),
    }
    rows = {(16, None), (32, 0.1), (8, "x")}
    for sampler in get_args(Sampler):
        points: dict[str, Dimension] = (
            {"learning_rate": Float(1e-3, 1e-1, log=True, points=2)} if sampler == "grid" else {}
        )
        sweep = Sweep(name="s", workload="w", space=space | points, sampler=sampler, trials=6)
        study = optuna.create_study()
        drawn = []
        for trial in range(6):
            learns = sampler not in LEARN_NOTHING
            study.sampler = make_sampler(sweep, trial) if learns else Given(draws_of(sweep).draw(trial)[0])
            asked = study.ask()
            values = suggest(sweep, asked)
            assert list(values) == ["learning_rate", "d_model", "n_heads"]
            drawn.append((values["d_model"], values["n_heads"]))
            assert values_of(sweep, asked.params) == values
            study.tell(asked, float(trial))
        assert set(drawn) <= rows
        if sampler == "grid":
            assert sorted(map(str, drawn)) == sorted(map(str, [*rows, *rows]))
    draws = RandomDraws(sweep.but(sampler="random", space=space))
    assert {tuple(values_of(sweep, draws.draw(trial)[0]).values())[1:] for trial in range(40)} == rows


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"a, b": Zip(((1, 2), (3,)))}, "space.a, b.rows"),
        ({"a": Zip(((1,), (2,)))}, "space.a"),
        ({"a, b": Zip(((1, 2),)), "b": 3}, "b"),
        ({"a, a": Zip(((1, 2),))}, "a"),
        ({"a, b": {"kind": "zip", "rows": [[1, [2]]]}}, "space.a, b.rows.0.1"),
    ],
)
def test_a_mistake_in_a_zip_is_named(space: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        Sweep(name="s", workload="w", space=space, trials=2)
    assert str(raised.value).startswith(message)
