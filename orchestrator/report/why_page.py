"""Data of the report's section on why trainings are stuck: a few representative trainings, with a page about each."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import duckdb
import numpy as np

from attnsweep.orchestrator.report.explorer.head_maps import averaged_map

_MOST_ROWS = 3
RULE = (
    f"One training of each of the {_MOST_ROWS} most frequent kinds of stuck trainings (outcome and detail): the one"
    " whose id has the lowest hash."
)
_STUCK = """
select outcome, coalesce(outcome_detail, ''), training_id, trial, replicate
from trainings where stuck order by outcome, outcome_detail
"""
N_SHADES = 4
_LEAST_SPAN = 0.1
"""The least range of the logarithm of the loss that a curve's height spans, so that a flat curve looks flat."""


@dataclass(frozen=True, slots=True)
class StuckRow:
    """A stuck training that represents `n` trainings with the same outcome and detail."""

    name: str
    outcome: str
    detail: str
    n: int


def stuck_rows(connection: duckdb.DuckDBPyConnection) -> tuple[StuckRow, ...]:
    """Chooses the stuck trainings that the report explains, by the rule `RULE`. The choice depends only on the ledger's
    rows.

    Args:
        connection: From `Ledger.connect`.
    """
    rows = connection.execute(_STUCK).fetchall()
    kinds = [list(rows_of_kind) for _, rows_of_kind in groupby(rows, key=lambda row: row[:2])]
    return tuple(_representative(kind) for kind in sorted(kinds, key=len, reverse=True)[:_MOST_ROWS])


def _representative(kind: Sequence[tuple[str, str, str, int, int]]) -> StuckRow:
    outcome, detail, _, trial, replicate = min(kind, key=lambda row: hashlib.blake2b(row[2].encode()).digest())
    return StuckRow(f"{trial}/{replicate}", outcome, detail, len(kind))


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownMap:
    """The attention map of one head, with its weights scaled to 0..1.

    Attributes:
        title: The head's name, and what is measured about it.
        cells: The weights, rows are queries and columns keys; from 0 to 1, relative to the largest weight.
    """

    title: str
    cells: tuple[tuple[float, ...], ...]

    @property
    def size(self) -> tuple[int, int]:
        return len(self.cells[0]) if self.cells else 0, len(self.cells)

    def shade(self, value: float) -> int:
        """Rounds a cell's value to one of the shades 0 to `N_SHADES`."""
        return math.ceil(N_SHADES * value - 0.5)

    def paths(self) -> list[tuple[float, str]]:
        """Returns for each shade except 0 its opacity, and its cells as one SVG path of unit squares."""
        squares: dict[int, list[str]] = {}
        for y, row in enumerate(self.cells):
            for x, value in enumerate(row):
                squares.setdefault(self.shade(value), []).append(f"M{x} {y}h1v1h-1z")
        return [(shade / N_SHADES, "".join(squares[shade])) for shade in sorted(squares) if shade]


@dataclass(frozen=True, kw_only=True, slots=True)
class WhyPage:
    """The content of the page that explains why one training is stuck.

    Attributes:
        name: TRIAL/REPLICATE.
        headline: The training's outcome and loss.
        facts: (name, text): the state and what it means, the way out, the forecast, the certificate.
        columns, rows: The table of the words of the gradient, with their numbers.
        notes: How to read this table.
        maps: The attention of the training's heads.
        curve: `eval_loss` at the training's probes, as (step, value), rising steps.
        replay: The command that replays the training.
    """

    name: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    maps: tuple[ShownMap, ...]
    curve: tuple[tuple[int, float], ...]
    replay: str

    def heights(self) -> list[tuple[int, float]]:
        """Scales the logarithm of the loss to heights from 0 to 1. Returns (step, height) of each probe."""
        points = [(step, math.log(value)) for step, value in self.curve if value > 0]
        if not points:
            return []
        low = min(height for _, height in points)
        span = max(max(height for _, height in points) - low, _LEAST_SPAN)
        return [(step, (height - low) / span) for step, height in points]

    def path(self, width: int, height: int) -> str:
        """Draws the loss curve as an SVG path with evenly spaced probes; empty without a curve."""
        points = self.heights()
        across = width / max(len(points) - 1, 1)
        corners = " ".join(f"{at * across:.1f},{height * (1 - y):.1f}" for at, (_, y) in enumerate(points))
        return f"M{corners}" if points else ""

    @property
    def ends(self) -> str:
        """The first and the last value of the loss curve, in words."""
        if not self.curve:
            return ""
        (first, at_first), (last, at_last) = self.curve[0], self.curve[-1]
        return f"{at_first:.3g} at step {first} to {at_last:.3g} at {last}"


def shown_map(title: str, weights: Sequence[Sequence[float]]) -> ShownMap:
    """Makes a map of at most 40 x 40 cells from the absolute weights. Rows are queries and columns are keys."""
    sizes = averaged_map(np.abs(np.array(weights, dtype=np.float64, ndmin=2)))
    sizes[~np.isfinite(sizes)] = 0.0
    cells = sizes / (sizes.max(initial=0.0) or 1.0)
    return ShownMap(title=title, cells=tuple(map(tuple, cells.tolist())))
