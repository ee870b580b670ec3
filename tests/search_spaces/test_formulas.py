"""Formulas: the values of Python, and nothing else of Python."""

from typing import Any

import pytest

from attnsweep.search_spaces import Categorical, Conditional, Derived, Sweep
from attnsweep.search_spaces.formulas import evaluated, names_in
from attnsweep.search_spaces.suggestion import values_of
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.declaration import Value
from attnsweep.workloads.errors import SpecError

VALUES: dict[str, Value] = {"d_model": 48, "n_heads": 5, "sigma": 0.25, "kind": "a"}


@pytest.mark.parametrize(
    "formula",
    [
        "d_model % n_heads == 0",
        "d_model // n_heads * n_heads - -2 ** 3",
        "1 < n_heads <= 5 < d_model",
        "not (kind in ('a', 'b') and n_heads != 5) or sigma >= 1 / 4",
        "'x' if kind not in ['a'] else max(n_heads, d_model, 7)",
        "round(log2(d_model) + sqrt(abs(-sigma)) + exp(0), 3) + ceil(sigma)",
    ],
)
def test_a_formula_has_the_value_that_python_gives_it(formula: str) -> None:
    import math

    assert evaluated(formula, VALUES, "f") == eval(formula, vars(math) | VALUES)
    assert names_in(formula, "f") <= VALUES.keys()


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')",
        "().__class__",
        "lambda: 1",
        "print(1)",
        "max(1, key=2)",
        "f'{a}'",
        "a << 3",
        "",
        "1 +" * 9999,
    ],
)
def test_what_is_no_formula_is_refused(formula: str) -> None:
    with pytest.raises(SpecError) as raised:
        names_in(formula, "where")
    assert raised.value.subject == "where"


@pytest.mark.parametrize("formula", ["1 / (n_heads - 5)", "9 ** 9 ** 9", "kind + 9", "log(0)", "missing"])
def test_a_formula_without_a_value_is_refused(formula: str) -> None:
    with pytest.raises(SpecError):
        evaluated(formula, VALUES, "f")


def _sweep(**changes: Any) -> Sweep:
    return Sweep(name="s", workload="category_pairs", space={}, trials=4, sampler="random").but(**changes)


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"where": "n_steps > 3"}, "where"),
        ({"space": {"n_steps": Derived("2 * batch_size")}}, "space.n_steps.formula"),
        ({"space": {"a": Derived("b"), "b": Derived("1")}}, "space.a.formula"),
        ({"space": {"n_steps": Derived("4 / 3")}}, "n_steps"),
        ({"space": {"n_steps": 3, "batch_size": Derived("n_steps / 0")}}, "batch_size.formula"),
        ({"space": {"n_categories": Categorical((4, 6))}, "where": "n_categories > 6"}, "where"),
        ({"space": {"n_steps": Derived("4"), "skip": Conditional(on="n_steps", among=(4,), then=True)}}, "skip.on"),
    ],
)
def test_formulas_that_do_not_fit_the_sweep_are_refused(changes: dict[str, Any], subject: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_sweep(_sweep(**changes), CategoryPairsParameters)
    assert raised.value.subject == subject


def test_formulas_are_stored_without_loss() -> None:
    space = {"n_categories": Categorical((4, 6)), "n_steps": Derived("n_categories * 2")}
    sweep = _sweep(space=space, where=("n_categories > 3",))
    assert Sweep.from_json(sweep.to_json()) == sweep
    check_sweep(sweep, CategoryPairsParameters)
    assert values_of(sweep, {"n_categories": 6}) == {"n_categories": 6, "n_steps": 12}
    assert "where" not in _sweep().to_json()
