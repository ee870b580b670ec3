"""The notebooks of docs/notebooks run from top to bottom."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.across.documents import ROOT

FOLDER = ROOT / "docs" / "notebooks"


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("emergence", marks=pytest.mark.ray), "stuck_rates"])
def test_a_notebook_runs(name: str, tmp_path: Path, no_mlflow: None) -> None:
    del no_mlflow
    subprocess.run([sys.executable, FOLDER / "execute.py", "--into", tmp_path, FOLDER / f"{name}.ipynb"], check=True)
    before, after = (nbformat.read(home / f"{name}.ipynb", as_version=4).cells for home in (FOLDER, tmp_path))
    assert [cell.source for cell in after] == [cell.source for cell in before]
