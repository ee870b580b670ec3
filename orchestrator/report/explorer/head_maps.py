"""The attention maps of some trainings, as data of the page's script. Axes: Q query token, K key token."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.report.explorer.points import text
from attnsweep.orchestrator.report.script import packed

_MOST_CELLS = 40
"""Of a map, along each side; of larger ones, neighbours are averaged."""
_MOST_LETTERS = 24


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ShownHead:
    """One head.

    Attributes:
        title: Its number, its role, and the structure that it is nearest to.
        weights_QK: Its attention.
    """

    title: str
    weights_QK: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ShownLayer:
    """The heads of one layer, and the tokens that their queries and keys are of."""

    title: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    heads: tuple[ShownHead, ...]

    @property
    def n_cells(self) -> int:
        """Of all heads together."""
        return len(self.heads) * len(_grouped(self.queries)) * len(_grouped(self.keys))

    def as_json(self) -> dict[str, Any]:
        """For the page's script. Weights have 8 bits: whole multiples of `unit`, which is the same for all heads."""
        cells = [averaged_map(each.weights_QK) for each in self.heads]
        top = max((float(np.abs(each).max()) for each in cells), default=0.0) or 1.0
        is_signed = any(bool((each < 0).any()) for each in cells)
        unit = top / (127 if is_signed else 255)
        kind = "i1" if is_signed else "u1"
        return {
            "title": text(self.title),
            "queries": _grouped(self.queries),
            "keys": _grouped(self.keys),
            "unit": float(f"{unit:.9g}"),
            "heads": [
                {"title": text(head.title), "weights": packed(np.rint(each / unit), kind)}
                for head, each in zip(self.heads, cells, strict=True)
            ],
        }


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainingMaps:
    """All heads of one training on one sentence.

    Attributes:
        name: TRIAL/REPLICATE.
        text: The sentence, and its number.
        layers: The attention layers.
    """

    name: str
    text: str
    layers: tuple[ShownLayer, ...]

    def as_json(self) -> dict[str, Any]:
        """For the page's script."""
        return {"name": self.name, "text": self.text, "layers": [each.as_json() for each in self.layers]}


def _size(n: int) -> int:
    """How many neighbours one cell stands for."""
    return math.ceil(n / _MOST_CELLS)


def averaged_map(weights_QK: NDArray[np.float64]) -> NDArray[np.float64]:
    """A map of at most 40 x 40 cells: of larger ones, neighbours are averaged."""
    for axis, n in enumerate(weights_QK.shape):
        firsts = np.arange(0, n, _size(n))
        counts = np.diff(np.append(firsts, n))
        weights_QK = np.add.reduceat(weights_QK, firsts, axis) / (counts if axis else counts[:, None])
    return weights_QK


def _grouped(tokens: Sequence[str]) -> list[str]:
    """The text of each cell's tokens."""
    size = _size(len(tokens))
    groups = [tokens[first : first + size] for first in range(0, len(tokens), size)]
    return [text(" ".join(group))[:_MOST_LETTERS] for group in groups]
