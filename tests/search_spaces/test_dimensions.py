"""Dimensions: by position as in Optuna's `suggest_*`, and named mistakes."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from attnsweep import Categorical, Float, Int, Sweep, Zip
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.workloads.errors import SpecError
from tests.refusals import refused

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


def _sweep(**space: Any) -> Sweep:
    return Sweep(
        name="s", workload="w", space={name.replace("_and_", ", "): each for name, each in space.items()}, trials=2
    )


@pytest.mark.parametrize(
    ("make", "subject"),
    [
        (lambda: Int(1, 2, low=0), "Int"),  # type: ignore[misc]
        (lambda: Categorical("a", "b"), "Categorical"),  # type: ignore[call-arg]
        (lambda: Float(1, 2, step=3), "step"),  # type: ignore[call-arg]
        (lambda: Float(2, 1), "low"),
        (lambda: Float(0, 1, log=True), "low"),
        (lambda: DIMENSIONS.validate_json('{"kind":"int","low":1,"high":2,"stop":3}'), "stop"),
        (lambda: _sweep(a_and_b=Zip(((1, 2), (3,)))), "space.a, b.rows"),
        (lambda: _sweep(a=Zip(((1,), (2,)))), "space.a"),
        (lambda: _sweep(a_and_b=Zip(((1, 2),)), b=3), "b"),
        (lambda: _sweep(a_and_b={"kind": "zip", "rows": [[1, [2]]]}), "space.a, b.rows.0.1"),
    ],
)
def test_a_mistake_is_named(make: Callable[[], object], subject: str) -> None:
    with refused(subject, SpecError):
        make()
