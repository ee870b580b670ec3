"""A version of a library that lacks a private name that we use is named."""

import runpy
from pathlib import Path

import pytest

from attnsweep.workloads.errors import UserError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("library", "file", "name"),
    [
        ("ray", "orchestrator/training/ray_internals.py", "ray._private.ray_constants.ENABLE_RAY_CLUSTER"),
        ("optuna", "search_spaces/optuna_internals.py", "optuna.study._constrained_optimization._CONSTRAINTS_KEY"),
    ],
)
def test_a_version_that_lacks_one_is_named(library: str, file: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(name)
    with pytest.raises(UserError) as refused:
        runpy.run_path(str(ROOT / file))
    assert refused.value.subject == library
