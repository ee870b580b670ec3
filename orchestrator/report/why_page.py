"""Why trainings are stuck: a few that stand for the others, and one page about each, as data."""

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
    f"Of each kind of stuck trainings (outcome and detail), the {_MOST_ROWS} most frequent first, one training: that"
    " whose id has the lowest hash."
)
_STUCK = """
select outcome, coalesce(outcome_detail, ''), training_id, trial, replicate
from trainings where stuck order by outcome, outcome_detail
"""
N_SHADES = 4
_LEAST_SPAN = 0.1
"""Of a logarithm of the loss, over the height of a curve: a flat curve looks flat."""


@dataclass(frozen=True, slots=True)
class StuckRow:
    """One training, and how many are stuck as it is."""

    name: str
    outcome: str
    detail: str
    n: int


def stuck_rows(connection: duckdb.DuckDBPyConnection) -> tuple[StuckRow, ...]:
    """The trainings that the rule chooses. The choice does not change while the ledger does not.

    Args:
        connection: From `Ledger.connect`.
    """
    rows = connection.execute(_STUCK).fetchall()
    kinds = [list(of) for _, of in groupby(rows, key=lambda row: row[:2])]
    return tuple(_representative(of) for of in sorted(kinds, key=len, reverse=True)[:_MOST_ROWS])


def _representative(of_kind: Sequence[tuple[str, str, str, int, int]]) -> StuckRow:
    outcome, detail, _, trial, replicate = min(of_kind, key=lambda row: hashlib.blake2b(row[2].encode()).digest())
    return StuckRow(f"{trial}/{replicate}", outcome, detail, len(of_kind))


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownMap:
    """The attention of one head.

    Attributes:
        title: Its name, and what is measured about it.
        cells: Rows are queries, columns are keys; from 0 to 1, relative to the largest.
    """

    title: str
    cells: tuple[tuple[float, ...], ...]

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return len(self.cells[0]) if self.cells else 0, len(self.cells)

    def shade(self, value: float) -> int:
        """The shade of a cell, from 0 to `N_SHADES`."""
        return math.ceil(N_SHADES * value - 0.5)

    def paths(self) -> list[tuple[float, str]]:
        """For each shade but 0 its opacity, and its cells as an SVG path of unit squares."""
        found: dict[int, list[str]] = {}
        for y, row in enumerate(self.cells):
            for x, value in enumerate(row):
                found.setdefault(self.shade(value), []).append(f"M{x} {y}h1v1h-1z")
        return [(shade / N_SHADES, "".join(found[shade])) for shade in sorted(found) if shade]


@dataclass(frozen=True, kw_only=True, slots=True)
class WhyPage:
    """What there is to say about one training.

    Attributes:
        name: TRIAL/REPLICATE.
        headline: Its outcome and loss.
        facts: (name, text): the state and what it means, the way out, the forecast, the certificate.
        columns, rows: The words with their numbers.
        notes: How to read them.
        maps: The attention.
        curve: `eval_loss` at its probes, as (step, value), rising steps.
        replay: The command that trains it again.
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
        """The curve as (step, height), from 0 to 1, of the logarithm of the loss."""
        points = [(step, math.log(value)) for step, value in self.curve if value > 0]
        if not points:
            return []
        low = min(height for _, height in points)
        span = max(max(height for _, height in points) - low, _LEAST_SPAN)
        return [(step, (height - low) / span) for step, height in points]

    def path(self, width: int, height: int) -> str:
        """The curve as an SVG path, over the order of its probes; empty without one."""
        points = self.heights()
        across = width / max(len(points) - 1, 1)
        corners = " ".join(f"{at * across:.1f},{height * (1 - y):.1f}" for at, (_, y) in enumerate(points))
        return f"M{corners}" if points else ""

    @property
    def ends(self) -> str:
        """The curve's first and last value, in words."""
        if not self.curve:
            return ""
        (first, at_first), (last, at_last) = self.curve[0], self.curve[-1]
        return f"{at_first:.3g} at step {first} to {at_last:.3g} at {last}"


def shown_map(title: str, weights: Sequence[Sequence[float]]) -> ShownMap:
    """A map of at most 40 x 40 cells; of weights of both signs, their sizes."""
    sizes = averaged_map(np.abs(np.array(weights, dtype=np.float64, ndmin=2)))
    sizes[~np.isfinite(sizes)] = 0.0
    cells = sizes / (sizes.max(initial=0.0) or 1.0)
    return ShownMap(title=title, cells=tuple(map(tuple, cells.tolist())))
