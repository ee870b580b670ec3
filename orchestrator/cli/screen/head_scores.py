"""Prints the result of `attnsweep score-heads`: a table of attention matrices."""

import sys

from rich import box
from rich.table import Table

from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.orchestrator.tools.score_heads import as_records
from attnsweep.workloads.diagnostics.matrices import NOT_MEASURED, MatrixScores

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


def print_scores(scores: MatrixScores) -> None:
    """Prints one row per attention head on stdout: its scores."""
    grid = Table(box=box.SIMPLE_HEAD)
    grid.add_column("head", justify="right")
    grid.add_column("role")
    columns = {name: column for name, column in _COLUMNS.items() if name in scores.scores}
    for name, (title, _) in columns.items():
        if name == "sigma_2":
            grid.add_column("w", justify="right")
            grid.add_column("p", justify="right")
        grid.add_column(title, justify="right", no_wrap=True)
    for record in as_records(scores):
        cells = [str(record["head"]), "positional" if record["positional"] else "?"]
        for name, (_, form) in columns.items():
            if name == "sigma_2":
                cells += [str(record["window"]), str(record["num_pos"])]
            value = record[name]
            cells.append("-" if value is None else format(value, form))
        grid.add_row(*cells)
    # A pipe has no terminal width, so the table may be as wide as needed.
    console = PlainConsole(width=None if sys.stdout.isatty() else 200)
    console.print(grid)
    console.print(_LEGEND.format(missing=", ".join(NOT_MEASURED)), soft_wrap=True)
