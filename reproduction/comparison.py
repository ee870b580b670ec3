"""Our values beside the published ones, for the terminal and as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

_VERDICTS = {True: Text("agrees"), False: Text("differs", "bold red"), None: Text()}


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedValue:
    """One published value or claim beside ours.

    Attributes:
        published: The number or the words of the publication; `None` if it says nothing.
        low, high: The 95% interval of our value, if it is an estimate.
        agrees: Whether our value supports the published one; `None` if there is nothing to support, or it is undecided.
    """

    name: str
    published: float | str | None
    ours: float | str
    low: float | None = None
    high: float | None = None
    agrees: bool | None = None


def value_row(
    name: str, ours: float | str, published: float | str | None = None, *, agrees: bool | None = None
) -> ComparedValue:
    """A computed value, without an interval."""
    return ComparedValue(name=name, published=published, ours=ours, agrees=agrees)


TextTable = tuple[str, Sequence[Sequence[str]]]
"""A table's title and its rows, the header first."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of a reproduction.

    Attributes:
        source: The publication, and the place in it.
        notes: What a reader must know to judge the rows, such as differences from the publication's set-up.
    """

    title: str
    source: str
    rows: Sequence[ComparedValue]
    figures: Sequence[Path] = ()
    notes: Sequence[str] = ()
    tables: Sequence[TextTable] = ()

    def print(self, console: Console) -> None:
        console.print()
        console.print(Text.assemble((self.title, "bold"), "  ", self.source))
        table = Table("", "published", "ours", "95% interval", "", box=None, header_style="bold")
        for row in self.rows:
            interval = "" if row.low is None or row.high is None else f"[{_text(row.low)}, {_text(row.high)}]"
            cells = (row.name, _text(row.published), _text(row.ours), interval)
            table.add_row(*map(Text, cells), _VERDICTS[row.agrees])
        console.print(table)
        for title, (header, *rows) in self.tables:
            console.print()
            console.print(Text(title))
            table = Table(*(Column(Text(cell)) for cell in header), box=None, header_style="bold")
            for own_row in rows:
                table.add_row(*map(Text, own_row))
            console.print(table)
        for note in self.notes:
            console.print(Text(f"- {note}"))
        for path in self.figures:
            console.print(Text(f"figure   {path}"), soft_wrap=True)

    def to_json(self) -> str:
        """One line."""
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
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json() + "\n")


def save_figure(figure: Figure, directory: Path, name: str) -> list[Path]:
    """As PNG and as SVG."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.{ending}" for ending in ("png", "svg")]
    for path in paths:
        figure.savefig(path)
    return paths


def _text(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"
