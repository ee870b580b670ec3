"""`attnsweep score-heads`: the scores of a user's own attention matrices, as a table or as JSON."""

import json
import math
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.workloads.diagnostics.matrices import NOT_MEASURED, MatrixScores
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file

_COLUMNS = {
    "positional_offset": ("offset", ".0f"),
    "positional_share": ("share", ".2f"),
    "positional_mass": ("mass", ".2f"),
    "previous_token": ("previous", ".2f"),
    "sigma_1": ("S1", ".2f"),
    "sigma_1_z": ("z", ".1f"),
    "sigma_2": ("S2(w)", ".2f"),
    "sigma_2_z": ("z", ".1f"),
    "sigma_3": ("S3(w,p)", ".2f"),
    "sigma_3_z": ("z", ".1f"),
    "sigma_3_any_column": ("S3 any", ".2f"),
    "sigma_1_plus_e": ("S1+E", ".2f"),
    "sigma_2_plus_e": ("S2+E", ".2f"),
    "sigma_3_plus_e": ("S3+E", ".2f"),
    "sigma_3_any_column_plus_e": ("S3 any+E", ".2f"),
}

_LEGEND = """\
S1, S2(w), S3(w,p): exact L1 distance to the identity, to a band of half-width w, to p blocks of w rows on
their first row's column (S3 any: on any of their columns). z: against the same matrix with its rows shuffled;
far below 0 is nearer than chance. The families are nested: compare z, not distances.
+E: with --free-entries, the distance to the family with that many entries anywhere besides.
Not measured, for want of tokens: {missing}."""


def load_matrices(path: Path) -> NDArray[np.float64]:
    """The array of numbers in a `.npy` file; nothing in it is executed.

    Raises:
        UserError: If there is no such file, or it does not hold an array of numbers.
    """
    found = given_file(path, "FILE", "a .npy file")
    try:
        with found.open("rb") as file:
            array: NDArray[np.generic] = np.lib.format.read_array(file, allow_pickle=False)
        if array.dtype.kind not in "fiu":
            raise ValueError(f"it holds {array.dtype}")
        return array.astype(np.float64)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise UserError(
            "FILE",
            given=str(path),
            expected="an array of numbers in NumPy's .npy format",
            fix=f"write it with numpy.save ({' '.join(str(error).split())})",
        ) from error


def print_table(found: MatrixScores) -> None:
    """Prints a row per head on stdout."""
    grid = Table(box=box.SIMPLE_HEAD)
    grid.add_column("head", justify="right")
    grid.add_column("role")
    columns = {name: column for name, column in _COLUMNS.items() if name in found.scores}
    for name, (title, _) in columns.items():
        if name == "sigma_2":
            grid.add_column("w", justify="right")
            grid.add_column("p", justify="right")
        grid.add_column(title, justify="right", no_wrap=True)
    for record in as_records(found):
        cells = [str(record["head"]), "positional" if record["positional"] else "?"]
        for name, (_, form) in columns.items():
            if name == "sigma_2":
                cells += [str(record["window"]), str(record["num_pos"])]
            value = record[name]
            cells.append("-" if value is None else format(value, form))
        grid.add_row(*cells)
    # A pipe has no width that the table must fit.
    console = PlainConsole(width=None if sys.stdout.isatty() else 200)
    console.print(grid)
    console.print(_LEGEND.format(missing=", ".join(NOT_MEASURED)), soft_wrap=True)


def as_json(found: MatrixScores, path: Path) -> str:
    """One line of JSON: a record per head."""
    content = {"file": str(path), "heads": as_records(found), "not_measured": list(NOT_MEASURED)}
    return json.dumps(content, allow_nan=False)


def as_records(found: MatrixScores) -> list[dict[str, object]]:
    """A record per head; `None` where a score is not defined."""
    return [
        {
            "head": head,
            "positional": bool(found.is_positional[head]),
            **{name: _number(float(score[head])) for name, score in found.scores.items()},
            "window": int(found.window[head]),
            "num_pos": int(found.num_pos[head]),
            "blocks": [
                {"start": start, "column": column}
                for start, column in zip(found.starts[head], found.columns[head], strict=True)
            ],
            "sigma_2_by_window": [_number(each) for each in found.bands[head].tolist()],
        }
        for head in range(len(found.window))
    ]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
