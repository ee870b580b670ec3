"""The notebooks of docs/notebooks run, and give what they show."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.across.documents import ROOT
from tests.across.test_docs import examples

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 150_000
COLOURS = re.compile(r"\x1b\[[\d;]*m")
PROGRESS = re.compile(r"trainings ━+ (\d+)/\1 \d+/s .*\ntrials (\d+)/\2  \w+ \d")


def _cells(notebook: Path) -> list[Any]:
    return [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]


def _shown(cell: Any) -> list[tuple[list[str], str]]:
    """A cell's outputs: their types, and their text without numbers."""
    given = [output.get("data", {"text/plain": output.get("text", "")}) for output in cell.outputs]
    return [(sorted(each), re.sub(r"[\d.:\s]+|nan", "#", each["text/plain"], flags=re.IGNORECASE)) for each in given]


def _numbers(cell: Any) -> list[float]:
    """The numbers in the answers of a cell; a progress bar is none."""
    answers = [output.data["text/plain"] for output in cell.outputs if output.output_type == "execute_result"]
    return [float(number) for each in answers for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", each)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("emergence", marks=[pytest.mark.scale, pytest.mark.ray]),
        pytest.param("own_workload", marks=pytest.mark.scale),
        pytest.param("stuck_rates", marks=pytest.mark.scale),
    ],
)
def test_a_notebook_gives_what_it_shows(name: str, tmp_path: Path, mlflow_database: str) -> None:
    stored = FOLDER / f"{name}.ipynb"
    subprocess.run([sys.executable, FOLDER / "execute.py", "--into", tmp_path, stored], check=True)
    before, after = _cells(stored), _cells(tmp_path / stored.name)
    assert [cell.source for cell in after] == [cell.source for cell in before]
    for was, now in zip(before, after, strict=True):
        assert _shown(now) == _shown(was), now.source
        # Another processor rounds other last digits, after which single trainings may end differently.
        assert _numbers(now) == pytest.approx(_numbers(was), rel=0.1, abs=0.03), now.source
    [run] = [cell for cell in after if "run_sweep(" in cell.source]
    pictures = [COLOURS.sub("", output.data["text/plain"]) for output in run.outputs]
    assert sum(bool(PROGRESS.match(each)) for each in pictures) == 1, pictures


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_the_outputs_of_a_run_from_top_to_bottom(notebook: Path) -> None:
    cells = _cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert cells[-1].outputs
    text = notebook.read_text()
    assert len(text) < MOST_BYTES
    assert not re.search(r"/tmp/|/home/|/root/", text)


def test_the_notebook_on_a_workload_has_that_of_the_guide() -> None:
    cell = _cells(FOLDER / "own_workload.ipynb")[0]
    assert cell.source.removeprefix("%%writefile ").strip() == examples()["find_first.py"].removeprefix("# ").strip()
