"""`import attnsweep`: all names exist, nothing slow is imported, and the folders cannot be imported on their own."""

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

import attnsweep

ROOT = Path(__file__).parents[2]
STUB = ROOT / "src" / "attnsweep" / "__init__.pyi"
HEAVY = ("torch", "ray", "mlflow", "optuna", "numpy", "pyarrow")
FOLDERS = ("orchestrator", "reproduction", "search_spaces", "workloads")
USER_CODE = """
from attnsweep import Categorical, Float, Sweep, open_sweep

sweep = Sweep(
    name="s",
    workload="category_pairs",
    space={"init_sigma": Float(1e-3, 1.0, log=True), "optimizer": Categorical(("sgd", "adam"))},
    trials=1,
)
reveal_type(sweep.trials)
open_sweep("sweeps/first").nothing
Float("low", 1.0)
"""


def homes() -> dict[str, str]:
    """The names of the stub, and the modules that they come from."""
    imports = [each for each in ast.parse(STUB.read_text()).body if isinstance(each, ast.ImportFrom)]
    return {alias.name: f"attnsweep.{each.module}" for each in imports for alias in each.names}


def test_every_name_is_there_and_is_that_of_its_module() -> None:
    assert sorted(homes()) == dir(attnsweep)
    for name, module in homes().items():
        assert getattr(attnsweep, name) is getattr(importlib.import_module(module), name)


def test_import_attnsweep_is_light() -> None:
    code = f"import sys, attnsweep; dir(attnsweep); sys.exit(str([each for each in {HEAVY} if each in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_not_imported_under_its_bare_name(folder: str) -> None:
    spec = importlib.util.spec_from_file_location(folder, ROOT / folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    message = f"^{folder} cannot be imported by this name: import attnsweep, or attnsweep.{folder}$"
    with pytest.raises(ImportError, match=message):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.scale
@pytest.mark.slow
def test_type_checkers_see_through_the_facade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    script = tmp_path / "user_code.py"
    script.write_text(USER_CODE)
    found, errors, _ = api.run(["--no-error-summary", str(script)])
    # Mypy may repeat what it kept of the same text at another path.
    assert [line.partition(script.name)[2] for line in found.splitlines()] == [
        ':10: note: Revealed type is "int"',
        ':11: error: "OpenedSweep" has no attribute "nothing"  [attr-defined]',
        ':12: error: Argument 1 to "Float" has incompatible type "str"; expected "float"  [arg-type]',
    ], errors
