"""Runs the notebooks of this folder and stores their outputs in them: `make notebooks`, or with the names of some.

Each runs in an empty folder of its own, as for a reader, so that no path of this machine is in its outputs.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def execute(notebook: Path, into: Path) -> Path:
    """Runs all cells of a notebook and writes it to a folder. Its kernel is that of this environment.

    Raises:
        CellExecutionError: With the traceback of the cell that failed.
    """
    cells = nbformat.read(notebook, as_version=4)
    with TemporaryDirectory(prefix="attnsweep-notebook-") as home:
        NotebookClient(
            cells,
            timeout=None,
            kernel_name="python3",
            record_timing=False,  # A notebook that gives the same outputs again does not change.
            resources={"metadata": {"path": home}},
        ).execute()
    for cell in cells.cells:
        if cell.cell_type == "code":
            # Libraries that miss ipywidgets, with times and paths of this machine.
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    cells.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    executed = into / notebook.name
    nbformat.write(cells, executed)
    return executed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(FOLDER.glob("*.ipynb")))
    parser.add_argument("--into", type=Path, default=FOLDER, help="where to write them; default: this folder")
    given = parser.parse_args()
    for each in given.notebooks:
        print(execute(each, given.into))
