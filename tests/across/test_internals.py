"""Private names of libraries: each library's are in one file, which raises a clear error if a version lacks one."""

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

import mlflow
import optuna
import pytest
import ray

from attnsweep.workloads.errors import UserError

ROOT = Path(__file__).parents[2]
OPTUNA_ATTRIBUTES = {"_storage", "_study_id", "_trial_id"}
"""Private attributes of Optuna's studies and trials, whatever variable holds the study."""
ALLOWED = {
    "ray": "orchestrator/training/ray_internals.py",
    "optuna": "search_spaces/optuna_internals.py",
    "mlflow": "orchestrator/tracking/mlflow_internals.py",
}


def _private_names(tree: ast.AST) -> Iterator[str]:
    """The private names of the three libraries that a file imports or reads."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = [each.name for each in names]
            case ast.ImportFrom(module=str(module), names=names):
                found = [f"{module}.{each.name}" for each in names]
            case ast.Attribute(attr=attribute) if attribute in OPTUNA_ATTRIBUTES:
                found = [f"optuna.{attribute}"]
            case ast.Attribute():
                found = [ast.unparse(node)]
            case _:
                continue
        for name in found:
            library, *parts = name.split(".")
            if library in ALLOWED and any(part.startswith("_") and not part.startswith("__") for part in parts):
                yield name


@pytest.mark.slow
@pytest.mark.parametrize("room", ["workloads", "search_spaces", "orchestrator", "infra"])
def test_private_names_stand_in_one_file_of_each_library(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        place = str(path.relative_to(ROOT))
        outside = [name for name in _private_names(ast.parse(path.read_text())) if ALLOWED[name.split(".")[0]] != place]
        assert outside == [], place


def test_the_search_finds_them() -> None:
    source = "import ray._private\nfrom optuna._transform import T\nfrom mlflow import _x\nray.worker._y\nray.z\n"
    source += "study._storage"
    expected = {"ray._private", "optuna._transform.T", "mlflow._x", "ray.worker._y", "optuna._storage"}
    assert set(_private_names(ast.parse(source))) == expected


@pytest.mark.parametrize(
    ("file", "owner", "name", "message"),
    [
        (
            "orchestrator/training/ray_internals.py",
            "ray._private.services",
            "get_node",
            rf"ray: got 'Ray version {ray.__version__}', expected a Ray version from 2\.58 to"
            r" 2\.60, which attnsweep was"
            r" tested with \(.*'get_node'\); install a tested version with: pip install 'ray\[default\]==2\.60\.\*'",
        ),
        (
            "search_spaces/optuna_internals.py",
            "optuna.samplers.CmaEsSampler",
            "_split_optimizer_str",
            rf"optuna: got 'Optuna version {optuna.__version__}', expected Optuna version 5\.0,"
            r" which attnsweep was tested with"
            r" \(.*'_split_optimizer_str'\); install the tested version with: pip install 'optuna==5\.0\.\*'",
        ),
        (
            "orchestrator/tracking/mlflow_internals.py",
            "mlflow.store.tracking.dbmodels.models",
            "SqlLatestMetric",
            rf"mlflow: got 'MLflow version {mlflow.__version__}', expected an MLflow version from 3\.15 to 3\.17, which"
            r" attnsweep was tested with \(.*'SqlLatestMetric'.*\); install a tested version with:"
            r" pip install 'mlflow==3\.17\.\*'",
        ),
    ],
)
def test_a_version_that_lacks_one_is_named(
    file: str, owner: str, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(f"{owner}.{name}")
    with pytest.raises(UserError, match=message):
        runpy.run_path(str(ROOT / file))
