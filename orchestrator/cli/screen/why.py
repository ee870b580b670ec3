"""The page about a training on a terminal."""

import math

from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.report.why_page import ShownMap, WhyPage

_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_BLOCKS = 60
_SHADES = " ░▒▓█"


def print_page(page: WhyPage, console: Console) -> None:
    """Prints one page."""

    def say(*lines: str) -> None:
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)

    say(page.headline, *(f"{name}: {text}" for name, text in page.facts), "")
    table = Table(box=None, header_style="bold")
    for column in page.columns:
        # A name that is cut off may be that of several weights.
        table.add_column(column, overflow="fold")
    for row in page.rows:
        table.add_row(*row)
    console.print(table)
    for note in page.notes:
        # Definitions of a deep model fill many lines: broken between words.
        console.print(note, markup=False, highlight=False)
    say("")
    for each in page.maps:
        say(*_drawn_map(each), "")
    say(*_drawn_curve(page), f"replay {page.replay}")


def _drawn_map(of: ShownMap) -> list[str]:
    """Two characters a cell; darker is larger."""
    rows = ["".join(2 * _SHADES[of.shade(value)] for value in row) for row in of.cells]
    return [of.title, *(f"  |{row}|" for row in rows)]


def _drawn_curve(page: WhyPage) -> list[str]:
    """The curve as a row of blocks, one per probe or per several."""
    points = page.heights()
    if not points:
        return []
    chosen = points[:: math.ceil(len(points) / _MOST_BLOCKS)]
    blocks = "".join(_BLOCKS[int((len(_BLOCKS) - 1) * height)] for _, height in chosen)
    return [f"loss   {blocks}  {page.ends}; logarithms of both"]
