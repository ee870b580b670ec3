"""How often cross-attention finds the source word that the next target word translates, by the grammar's alignment.

Alignment is a score without a role: roles are positional, syntactic and rare-token. Axes: ... heads; B sentence, Q
query, K key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.roles import Sentences

ALIGNMENT_SCORES = ("alignment", "alignment_baseline")


@dataclass(frozen=True, slots=True)
class Alignment:
    """The alignment of B sentences.

    Attributes:
        place_BQ: The source position of the word that each query is about to write; -1 if that word translates none.
        offset: The best fixed difference between source position and query position, fitted on training sentences.
    """

    place_BQ: Tensor
    offset: int


@dataclass(frozen=True, slots=True)
class AlignmentCounts:
    """Counts over the queries whose next word translates a counting key: hits (...), hits by the fixed offset, all."""

    hits: NDArray[np.float64]
    by_offset: int
    n_queries: int


def count_aligned(strongest: Tensor, sentences: Sentences, alignment: Alignment) -> AlignmentCounts:
    """Counts of heads on one batch, from their strongest keys (..., B, Q)."""
    place_BQ = alignment.place_BQ
    counts_BQ = sentences.queries & (place_BQ >= 0)
    counts_BQ = counts_BQ & sentences.keys.gather(1, place_BQ.clamp(min=0))
    hits = ((strongest == place_BQ) & counts_BQ).sum((-2, -1))
    query_Q = place_BQ.new_tensor(range(place_BQ.shape[1]))
    by_offset = ((query_Q + alignment.offset == place_BQ) & counts_BQ).sum()
    return AlignmentCounts(hits.double().cpu().numpy(), int(by_offset), int(counts_BQ.sum()))


def alignment_scores(counts: Sequence[AlignmentCounts]) -> dict[str, NDArray[np.float64]]:
    """`alignment`: the share of queries whose strongest key is the aligned one; `_baseline`: by the fixed offset."""
    n_queries = sum(each.n_queries for each in counts)
    hits = np.sum([each.hits for each in counts], axis=0)
    return {
        "alignment": hits / n_queries,
        "alignment_baseline": np.full_like(hits, sum(each.by_offset for each in counts) / n_queries),
    }
