"""What a report shows of trainings that were trained again for it: why some are stuck, and attention maps.

Axes: Q query token, K key token.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.report.templating import packed, short_text

_MOST_ROWS = 3
STUCK_RULE = (
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
_MOST_CELLS = 40
"""The most cells along each side of a map; in larger maps, neighbours are averaged."""
_MOST_LETTERS = 24


@dataclass(frozen=True, slots=True)
class StuckRow:
    """A stuck training that the report explains, as an example of all trainings with the same outcome and detail.

    `name` is TRIAL/REPLICATE, and `detail` the training's `outcome_detail`. There are `n` such trainings.
    """

    name: str
    outcome: str
    detail: str
    n: int


def stuck_rows(connection: duckdb.DuckDBPyConnection) -> tuple[StuckRow, ...]:
    """Chooses the stuck trainings that the report explains, by the rule that `STUCK_RULE` states. The choice depends
    only on the rows of the ledger."""
    rows = connection.execute(_STUCK).fetchall()
    kinds = [list(rows_of_kind) for _, rows_of_kind in groupby(rows, key=lambda row: row[:2])]
    chosen = []
    for kind in sorted(kinds, key=len, reverse=True)[:_MOST_ROWS]:
        outcome, detail, _, trial, replicate = min(kind, key=lambda row: hashlib.blake2b(row[2].encode()).digest())
        chosen.append(StuckRow(f"{trial}/{replicate}", outcome, detail, len(kind)))
    return tuple(chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownMap:
    """The attention weights of one head as a map that a page draws.

    Attributes:
        title: The head's name, and what is measured about it.
        cells: The weights, rows are queries and columns keys; from 0 to 1, relative to the largest weight.
    """

    title: str
    cells: tuple[tuple[float, ...], ...]

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of columns and rows of cells in the map of attention weights."""
        return len(self.cells[0]) if self.cells else 0, len(self.cells)

    def shade(self, value: float) -> int:
        """Rounds the attention weight of a cell to one of the shades 0 to `N_SHADES`."""
        return math.ceil(N_SHADES * value - 0.5)

    def paths(self) -> list[tuple[float, str]]:
        """Returns (opacity, SVG path) for each shade of the attention map except 0; the path covers all cells of this
        shade."""
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
        facts: (name, text): the state at the end and what it means, the way out of it, the forecast, and the
            certificate (a test of the outcome). columns, rows: The table of the gradient's terms (the matrix products
            whose sum is the gradient), with their numbers.
        notes: How to read this table.
        maps: The attention of the training's heads.
        curve: `eval_loss` at the training's probes, as (step, value), in the order of steps.
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

    def heights(self) -> list[float]:
        """Returns how high each point of the loss curve lies in its drawing, from 0 to 1, on a logarithmic axis."""
        logs = [math.log(value) for _, value in self.curve if value > 0]
        low = min(logs, default=0.0)
        span = max(max(logs, default=0.0) - low, _LEAST_SPAN)
        return [(each - low) / span for each in logs]

    def path(self, width: int, height: int) -> str:
        """Returns the loss curve as an SVG path with its points evenly spaced; an empty text if there is no curve."""
        heights = self.heights()
        across = width / max(len(heights) - 1, 1)
        corners = " ".join(f"{at * across:.1f},{height * (1 - up):.1f}" for at, up in enumerate(heights))
        return f"M{corners}" if heights else ""

    @property
    def ends(self) -> str:
        """The first and the last loss of the training's curve, with their steps, in words."""
        if not self.curve:
            return ""
        (first, at_first), (last, at_last) = self.curve[0], self.curve[-1]
        return f"{at_first:.3g} at step {first} to {at_last:.3g} at {last}"


def shown_map(title: str, weights: Sequence[Sequence[float]]) -> ShownMap:
    """Makes a map of at most 40 x 40 cells from the absolute attention weights of a head. Rows are queries and columns
    are keys."""
    sizes = averaged_map(np.abs(np.array(weights, dtype=np.float64, ndmin=2)))
    sizes[~np.isfinite(sizes)] = 0.0
    cells = sizes / (sizes.max(initial=0.0) or 1.0)
    return ShownMap(title=title, cells=tuple(map(tuple, cells.tolist())))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ShownLayer:
    """The attention maps of all heads of one layer, as the report's section *Explore* shows them.

    Attributes:
        title: The layer's name.
        queries, keys: The texts of the query and key tokens.
        heads: The attention weights (Q, K) of each head, by a title: the head's number, its role, and the structure of
            attention, such as a diagonal, that it is nearest to.
    """

    title: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    heads: Mapping[str, NDArray[np.float64]]

    @property
    def n_cells(self) -> int:
        """The number of cells in the attention maps of all heads of this layer. In large maps, neighbouring cells are
        averaged into one first.
        """
        return len(self.heads) * len(_grouped(self.queries)) * len(_grouped(self.keys))

    def as_json(self) -> dict[str, Any]:
        """Encodes the attention weights of all heads of the layer for the script of the report's page. They are rounded
        to 8-bit integers, with one scale for all heads."""
        maps = {title: averaged_map(weights_QK) for title, weights_QK in self.heads.items()}
        top = max((float(np.abs(weights).max()) for weights in maps.values()), default=0.0) or 1.0
        is_signed = any(bool((weights < 0).any()) for weights in maps.values())
        unit = top / (127 if is_signed else 255)
        kind = "i1" if is_signed else "u1"
        return {
            "title": short_text(self.title),
            "queries": _grouped(self.queries),
            "keys": _grouped(self.keys),
            "unit": float(f"{unit:.9g}"),
            "heads": [
                {"title": short_text(title), "weights": packed(np.rint(weights / unit), kind)}
                for title, weights in maps.items()
            ],
        }


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainingMaps:
    """The attention maps of all heads of one training on one sentence.

    Attributes:
        name: TRIAL/REPLICATE.
        text: The sentence, and its number.
        layers: The attention layers.
    """

    name: str
    text: str
    layers: tuple[ShownLayer, ...]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "text": self.text, "layers": [layer.as_json() for layer in self.layers]}


def averaged_map(weights_QK: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reduces an attention map with more than 40 x 40 cells to at most that many, by averaging neighbouring cells."""
    for axis, n in enumerate(weights_QK.shape):
        firsts = np.arange(0, n, math.ceil(n / _MOST_CELLS))
        counts = np.diff(np.append(firsts, n))
        weights_QK = np.add.reduceat(weights_QK, firsts, axis) / (counts if axis else counts[:, None])
    return weights_QK


def _grouped(tokens: Sequence[str]) -> list[str]:
    """Returns the labels of a reduced map's cells: the texts of the tokens that a cell averages, joined and cut to 24
    letters."""
    size = math.ceil(len(tokens) / _MOST_CELLS)
    groups = [tokens[first : first + size] for first in range(0, len(tokens), size)]
    return [short_text(" ".join(group))[:_MOST_LETTERS] for group in groups]
