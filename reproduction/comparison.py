"""Ours beside the published: the rows of a reproduction, on screen and as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedValue:
    """One published value or claim, and ours.

    Attributes:
        name: What is compared.
        published: As the source has it, a number or its words; `None` where it says nothing.
        ours: What we find.
        low, high: The 95% interval of ours, where it is an estimate.
        agrees: Whether ours bears the published out; `None` where there is nothing to agree with.
    """

    name: str
    published: float | str | None
    ours: float | str
    low: float | None = None
    high: float | None = None
    agrees: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The outcome of a reproduction.

    Attributes:
        title: What was reproduced.
        source: Paper and section.
        rows: Ours beside the published.
        figures: Files written.
        notes: What a reader must know to judge the rows: differences of set-up, assumptions.
        tables: Further tables, by title, first row the header.
    """

    title: str
    source: str
    rows: Sequence[ComparedValue]
    figures: Sequence[Path] = ()
    notes: Sequence[str] = ()
    tables: Sequence[tuple[str, Sequence[Sequence[str]]]] = ()

    def print(self, console: Console) -> None:
        """Prints the tables, the notes, and where the figures are."""
        console.print(f"\n[bold]{escape(self.title)}[/]  {escape(self.source)}")
        console.print(_table(self.rows))
        for title, rows in self.tables:
            console.print(f"\n{escape(title)}")
            console.print(_plain_table(rows))
        for note in self.notes:
            console.print(f"- {note}", markup=False)
        for path in self.figures:
            console.print(f"figure   {path}", soft_wrap=True, markup=False)

    def to_json(self) -> str:
        """One line of JSON: title, source, rows, notes and figures."""
        content = {
            "title": self.title,
            "source": self.source,
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "tables": [{"title": title, "rows": rows} for title, rows in self.tables],
            "notes": list(self.notes),
            "figures": [str(path) for path in self.figures],
        }
        return json.dumps(content, allow_nan=False)


def write_comparison(comparison: Comparison, directory: Path, name: str) -> None:
    """Writes `<name>.json` beside the figures."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(comparison.to_json() + "\n")


def save_figure(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Writes a figure as PNG and SVG into the directory.

    Returns:
        The two files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.{ending}" for ending in ("png", "svg")]
    for path in paths:
        figure.savefig(path)
    return paths


def _table(rows: Sequence[ComparedValue]) -> Table:
    table = Table("", "published", "ours", "95% interval", "", box=None, header_style="bold")
    for row in rows:
        verdict = {True: "agrees", False: "[bold red]differs[/]", None: ""}[row.agrees]
        interval = "" if row.low is None or row.high is None else f"[{_text(row.low)}, {_text(row.high)}]"
        table.add_row(
            escape(row.name), escape(_text(row.published)), escape(_text(row.ours)), escape(interval), verdict
        )
    return table


def _plain_table(rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*(escape(cell) for cell in rows[0]), box=None, header_style="bold")
    for row in rows[1:]:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _text(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"
