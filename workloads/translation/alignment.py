"""Alignment scores: how often cross-attention finds the source word that the next target word translates.

The grammar knows the alignment. No role is given by this score: roles are positional, syntactic and rare-token. Axes:
... any number of axes of heads; B sentence, Q query, K key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.sentences import Sentences

ALIGNMENT_SCORES = ("alignment", "alignment_baseline")


@dataclass(frozen=True, slots=True)
class Alignment:
    """The word alignment of B sentences with their translations.

    Attributes:
        place_BQ: The position of the source word that the next target word of each query translates; -1 if there is
            none.
        offset: The best fixed difference between source position and query position, fitted on training sentences.
    """

    place_BQ: Tensor
    offset: int


@dataclass(frozen=True, slots=True)
class AlignmentCounts:
    """Counts over those queries whose next word is the translation of a valid key.

    Attributes:
        hits: (...) the number of queries whose strongest key is the translated word.
        by_offset: The number of queries at whose position plus the fixed offset the translated word is.
        n_queries: The number of these queries.
    """

    hits: NDArray[np.float64]
    by_offset: int
    n_queries: int


def count_aligned(strongest: Tensor, sentences: Sentences, alignment: Alignment) -> AlignmentCounts:
    """Counts on one batch how often heads find the aligned word, given their strongest keys (..., B, Q)."""
    place_BQ = alignment.place_BQ
    counts_BQ = sentences.queries & (place_BQ >= 0)
    counts_BQ = counts_BQ & sentences.keys.gather(1, place_BQ.clamp(min=0))
    hits = ((strongest == place_BQ) & counts_BQ).sum((-2, -1))
    query_Q = place_BQ.new_tensor(range(place_BQ.shape[1]))
    by_offset = ((query_Q + alignment.offset == place_BQ) & counts_BQ).sum()
    return AlignmentCounts(hits.double().cpu().numpy(), int(by_offset), int(counts_BQ.sum()))


def alignment_scores(counts: Sequence[AlignmentCounts]) -> dict[str, NDArray[np.float64]]:
    """Returns `alignment`, the fraction of queries whose strongest key is the aligned word, and `alignment_baseline`,
    the fraction that a fixed offset finds, over all batches.
    """
    n_queries = sum(batch.n_queries for batch in counts)
    hits = np.sum([batch.hits for batch in counts], axis=0)
    return {
        "alignment": hits / n_queries,
        "alignment_baseline": np.full_like(hits, sum(batch.by_offset for batch in counts) / n_queries),
    }
