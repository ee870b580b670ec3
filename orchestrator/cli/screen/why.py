"""Prints the page of `attnsweep why` on a terminal."""

import math

from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.report.retrained import ShownMap, WhyPage

_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_BLOCKS = 60
_SHADES = " ░▒▓█"


def print_page(page: WhyPage, console: Console) -> None:
    """Prints the analysis of a stuck training: facts, the table of gradient words, notes, attention maps and the loss
    curve."""

    def say(*lines: str) -> None:
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)

    say(page.headline, *(f"{name}: {text}" for name, text in page.facts), "")
    table = Table(box=None, header_style="bold")
    for column in page.columns:
        # Long names are wrapped, not truncated, because a truncated name may stand for several weights.
        table.add_column(column, overflow="fold")
    for row in page.rows:
        table.add_row(*row)
    console.print(table)
    for note in page.notes:
        # Notes wrap between words, because the definitions of a deep model fill many lines.
        console.print(note, markup=False, highlight=False)
    say("")
    for shown_map in page.maps:
        say(*_drawn_map(shown_map), "")
    say(*_drawn_curve(page), f"replay {page.replay}")


def _drawn_map(shown_map: ShownMap) -> list[str]:
    """Draws an attention map in text, two characters per cell; a darker character means a larger weight."""
    rows = ["".join(2 * _SHADES[shown_map.shade(value)] for value in row) for row in shown_map.cells]
    return [shown_map.title, *(f"  |{row}|" for row in rows)]


def _drawn_curve(page: WhyPage) -> list[str]:
    """Draws the loss curve as a row of block characters. If there are many probes, it draws every k-th."""
    points = page.heights()
    if not points:
        return []
    chosen = points[:: math.ceil(len(points) / _MOST_BLOCKS)]
    blocks = "".join(_BLOCKS[int((len(_BLOCKS) - 1) * height)] for height in chosen)
    return [f"loss   {blocks}  {page.ends}; logarithms of both"]
