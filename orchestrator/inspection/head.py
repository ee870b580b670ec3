"""One attention head on one sentence: its map, role, scores, and the family of matrices that it is nearest to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attnsweep.workloads.diagnostics.matrices import MatrixScores, score_matrices
from attnsweep.workloads.head_maps import LayerMaps

_FEWEST_TOKENS = 3
"""The least number of tokens of an attention map that is compared with structures (diagonal, band, blocks): with two
tokens every map is near to all structures."""
_NEARER_THAN_CHANCE = -2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Structure:
    """The family of matrices that an attention map is nearest to.

    Attributes:
        family: `S1` (identity), `S2` (band) or `S3` (blocks), see docs/roles.md; `none` if no family is nearer than
            chance.
        window, num_pos: The width w and the number p of blocks for which the distances are computed.
        distance, z: By family: the exact distance per token; how far it is from the mean of the shuffles, in their
            standard deviations.
        blocks: (first row, column) of each block of the nearest member of S3.
    """

    family: str
    window: int
    num_pos: int
    distance: Mapping[str, float]
    z: Mapping[str, float]
    blocks: tuple[tuple[int, int], ...]

    @property
    def label(self) -> str:
        """The family with its sizes."""
        arguments = {"S2": f"({self.window})", "S3": f"({self.window}, {self.num_pos})"}
        return self.family + arguments.get(self.family, "")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Head:
    """One head, numbered as in the ledger.

    Attributes:
        role: At the last probe; `None` if heads were not scored.
        scores: At the last probe, by name, without those that the layer does not have.
        structure: The nearest structure; `None` if the map is not a square matrix of shares.
    """

    layer: int
    head: int
    role: str | None
    scores: Mapping[str, float]
    structure: Structure | None
    weights_QK: Tensor


def heads_of_layer(layer: LayerMaps, scored: Mapping[tuple[int, int], Mapping[str, Any]]) -> list[Head]:
    """`scored` has rows of `heads` at the last probe, by layer and head; a head without a row was not scored."""
    structures = _structures(layer)
    heads = []
    for index, weights_QK in enumerate(layer.weights_HQK):
        row = scored.get((layer.number, index), {})
        scores = {name.removeprefix("score_"): value for name, value in row.items() if name.startswith("score_")}
        heads.append(
            Head(
                layer=layer.number,
                head=index,
                role=row.get("role"),
                scores={name: value for name, value in scores.items() if value is not None},
                structure=structures[index],
                weights_QK=weights_QK,
            )
        )
    return heads


def _structures(layer: LayerMaps) -> list[Structure | None]:
    weights_HQK = layer.weights_HQK
    is_share = bool((weights_HQK >= 0).all())
    if not layer.is_square or not is_share or len(layer.keys) < _FEWEST_TOKENS:
        return [None] * len(weights_HQK)
    is_causal = not bool(weights_HQK.triu(1).any())
    scored = score_matrices(weights_HQK, is_causal=is_causal)
    return [_structure(scored, head, len(layer.keys)) for head in range(len(weights_HQK))]


def _structure(scored: MatrixScores, head: int, n_tokens: int) -> Structure:
    families = {"S1": "sigma_1", "S2": "sigma_2", "S3": "sigma_3"}
    z = {family: float(scored.scores[f"{name}_z"][head]) for family, name in families.items()}
    # A z-score compares an attention map with shuffles of it. If the entries of each row are equal, all shuffles equal
    # the map, and its z-scores are not finite.
    known = {family: value for family, value in z.items() if math.isfinite(value)}
    nearest = min(known, key=lambda family: known[family], default="none")
    return Structure(
        family=nearest if known.get(nearest, 0.0) < _NEARER_THAN_CHANCE else "none",
        window=int(scored.window[head]),
        num_pos=int(scored.num_pos[head]),
        distance={family: float(scored.scores[name][head]) / n_tokens for family, name in families.items()},
        z=known,
        blocks=tuple(zip(scored.starts[head], scored.columns[head], strict=True)),
    )
