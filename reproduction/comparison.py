"""The result of a reproduction: our values beside the published ones, for the terminal and as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

_VERDICTS = {True: Text("agrees"), False: Text("differs", "bold red"), None: Text()}


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedValue:
    """One published value or claim beside our value, with the interval of our value and whether the two agree.

    Attributes:
        name: What is compared.
        published: The number or the words of the publication; `None` if it says nothing.
        ours: Our value.
        low, high: The 95% interval of our value, if it is an estimate.
        agrees: Whether our value supports the published one; `None` if there is nothing to support.
    """

    name: str
    published: float | str | None
    ours: float | str
    low: float | None = None
    high: float | None = None
    agrees: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of a reproduction: our values beside the published ones, with figures, tables and notes.

    Attributes:
        title: What was reproduced.
        source: The publication, and the place in it.
        rows: Our values beside the published ones.
        figures: The files that were written.
        notes: What a reader must know to judge the rows, such as differences from the publication's set-up.
        tables: Further tables by title; the first row of each is its header.
    """

    title: str
    source: str
    rows: Sequence[ComparedValue]
    figures: Sequence[Path] = ()
    notes: Sequence[str] = ()
    tables: Sequence[tuple[str, Sequence[Sequence[str]]]] = ()

    def print(self, console: Console) -> None:
        """Prints our values beside the published ones as a table, then further tables, notes, and the paths of the
        figures.
        """
        console.print()
        console.print(Text.assemble((self.title, "bold"), "  ", self.source))
        console.print(_table(self.rows))
        for title, rows in self.tables:
            console.print()
            console.print(Text(title))
            console.print(_plain_table(rows))
        for note in self.notes:
            console.print(Text(f"- {note}"))
        for path in self.figures:
            console.print(Text(f"figure   {path}"), soft_wrap=True)

    def to_json(self) -> str:
        """Returns the comparison as one line of JSON: title, source, rows, tables, notes and figures."""
        content = {
            "title": self.title,
            "source": self.source,
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "tables": [{"title": title, "rows": rows} for title, rows in self.tables],
            "notes": list(self.notes),
            "figures": [str(path) for path in self.figures],
        }
        return json.dumps(content, allow_nan=False)

    def write(self, path: Path) -> None:
        """Writes the compared values, tables and notes to a file as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json() + "\n")


def save_figure(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Writes a figure into the directory as PNG and as SVG, and returns both paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.{ending}" for ending in ("png", "svg")]
    for path in paths:
        figure.savefig(path)
    return paths


def framed(panel: Axes, **settings: Any) -> None:
    """Sets labels and scales of a plot like `Axes.set`, and hides the top and right side of its frame."""
    panel.set(**settings)
    panel.spines[["top", "right"]].set_visible(False)


def _table(rows: Sequence[ComparedValue]) -> Table:
    table = Table("", "published", "ours", "95% interval", "", box=None, header_style="bold")
    for row in rows:
        interval = "" if row.low is None or row.high is None else f"[{_text(row.low)}, {_text(row.high)}]"
        cells = (row.name, _text(row.published), _text(row.ours), interval)
        table.add_row(*map(Text, cells), _VERDICTS[row.agrees])
    return table


def _plain_table(rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*(Column(Text(cell)) for cell in rows[0]), box=None, header_style="bold")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def _text(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"
