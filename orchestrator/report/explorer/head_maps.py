"""Attention maps of some trainings, as data for the page's script. Axes: Q query token, K key token."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.report.explorer.points import text
from attnsweep.orchestrator.report.script import packed

_MOST_CELLS = 40
"""The most cells along each side of a map; in larger maps, neighbours are averaged."""
_MOST_LETTERS = 24


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ShownHead:
    """The attention map of one head, as the explorer shows it.

    Attributes:
        title: The head's number, its role, and the attention structure that it is nearest to.
        weights_QK: The attention weights.
    """

    title: str
    weights_QK: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ShownLayer:
    """The heads of one layer, and the texts of their query and key tokens, as the explorer shows them."""

    title: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    heads: tuple[ShownHead, ...]

    @property
    def n_cells(self) -> int:
        """The number of cells in the attention maps of all heads of the layer together."""
        return len(self.heads) * len(_grouped(self.queries)) * len(_grouped(self.keys))

    def as_json(self) -> dict[str, Any]:
        """Encodes the heads for the page's script. Weights become 8-bit multiples of a `unit` that all heads share."""
        maps = [averaged_map(head.weights_QK) for head in self.heads]
        top = max((float(np.abs(weights).max()) for weights in maps), default=0.0) or 1.0
        is_signed = any(bool((weights < 0).any()) for weights in maps)
        unit = top / (127 if is_signed else 255)
        kind = "i1" if is_signed else "u1"
        return {
            "title": text(self.title),
            "queries": _grouped(self.queries),
            "keys": _grouped(self.keys),
            "unit": float(f"{unit:.9g}"),
            "heads": [
                {"title": text(head.title), "weights": packed(np.rint(weights / unit), kind)}
                for head, weights in zip(self.heads, maps, strict=True)
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


def _size(n: int) -> int:
    """Returns how many neighbouring tokens one cell of an attention map averages, given `n` tokens."""
    return math.ceil(n / _MOST_CELLS)


def averaged_map(weights_QK: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reduces a larger attention map to at most 40 x 40 cells by averaging neighbouring ones."""
    for axis, n in enumerate(weights_QK.shape):
        firsts = np.arange(0, n, _size(n))
        counts = np.diff(np.append(firsts, n))
        weights_QK = np.add.reduceat(weights_QK, firsts, axis) / (counts if axis else counts[:, None])
    return weights_QK


def _grouped(tokens: Sequence[str]) -> list[str]:
    """Returns for each cell of a reduced map the texts of its tokens, joined and cut to 24 letters."""
    size = _size(len(tokens))
    groups = [tokens[first : first + size] for first in range(0, len(tokens), size)]
    return [text(" ".join(group))[:_MOST_LETTERS] for group in groups]
