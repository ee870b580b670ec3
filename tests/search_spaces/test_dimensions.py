"""Ranges and choices by position, as in Optuna's `suggest_*`; their JSON form is that of the keywords."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from attnsweep.search_spaces import Categorical, Conditional, Float, Int
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.workloads.errors import SpecError

DIMENSIONS: TypeAdapter[Any] = TypeAdapter(Dimension)


@pytest.mark.parametrize(
    ("by_position", "by_name", "json"),
    [
        (
            Float(1e-3, 1.0, log=True),
            Float(low=1e-3, high=1.0, log=True),
            '{"log":true,"points":null,"kind":"float","low":0.001,"high":1.0}',
        ),
        (
            Int(4, high=12, points=3),
            Int(low=4, high=12, points=3),
            '{"log":false,"points":3,"kind":"int","low":4,"high":12}',
        ),
        (
            Categorical(("a", None, 1)),
            Categorical(choices=("a", None, 1)),
            '{"kind":"categorical","choices":["a",null,1]}',
        ),
        (
            Conditional(on="x", among=(1,), then=Int(1, 2)),
            Conditional(on="x", among=(1,), then=Int(low=1, high=2)),
            '{"kind":"conditional","on":"x","among":[1],'
            '"then":{"log":false,"points":null,"kind":"int","low":1,"high":2},"otherwise":null}',
        ),
    ],
)
def test_a_dimension_by_position_is_the_one_by_name(
    by_position: Float | Int | Categorical | Conditional, by_name: object, json: str
) -> None:
    assert by_position == by_name
    assert by_position.model_dump_json() == json
    assert DIMENSIONS.validate_json(json) == by_position
    assert DIMENSIONS.validate_python(by_position.model_dump()) == by_position


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Float(1, 2, 3),  # type: ignore[call-arg,arg-type]
            "Float: got '3 values by position', expected the fields low, high by position or by"
            " name, and all other fields by"
            " name; write Float(low=..., high=...)",
        ),
        (
            lambda: Int(1, 2, low=0),  # type: ignore[misc]
            "low: got '2 values by position and low=0', expected the fields low, high by position"
            " or by name, and all other fields by"
            " name; write Int(low=..., high=...)",
        ),
        (
            lambda: Categorical("a", "b"),  # type: ignore[call-arg]
            "Categorical: got '2 values by position', expected the fields choices by position or"
            " by name, and all other fields by"
            " name; write Categorical(choices=...)",
        ),
        (lambda: Float(1), "high: got 'nothing', expected a value; give high"),  # type: ignore[call-arg]
        (
            lambda: Float(1, 2, step=3),  # type: ignore[call-arg]
            "step: got 3, expected no such field; remove it, or correct its name",
        ),
        (lambda: Int(1.5, 2), "low: got 1.5, expected a valid integer; correct the value"),  # type: ignore[arg-type]
        (lambda: Float(2, 1), "low: got 2.0, expected at most high=1; exchange low and high"),
        (
            lambda: DIMENSIONS.validate_json('{"kind":"float","low":1}'),
            "high: got 'nothing', expected a value; give high",
        ),
        (
            lambda: DIMENSIONS.validate_json('{"kind":"int","low":1,"high":2,"stop":3}'),
            "stop: got 3, expected no such field; remove it, or correct its name",
        ),
    ],
)
def test_a_mistake_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        make()
    assert str(raised.value) == message
