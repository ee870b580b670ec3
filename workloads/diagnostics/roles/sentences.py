"""The sentences that attention was captured on, as role scores need them. Axes: B sentence, Q query, K key."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Arcs:
    """Gold dependency arcs of a batch of sentences; queries and keys must be the same tokens.

    Attributes:
        relations: The names of the relations, such as `subject`.
        sentence: (A,) int64, the index of each arc's sentence in the batch.
        relation: (A,) int64, the index of its relation in `relations`.
        dependent, governor: (A,) int64, the positions of its two ends.
    """

    relations: Sequence[str]
    sentence: Tensor
    relation: Tensor
    dependent: Tensor
    governor: Tensor

    def ends(self) -> tuple[Tensor, Tensor]:
        """Each arc's query position and the key position to find, (2, A) each; directions: to governor, to
        dependent."""
        return torch.stack([self.dependent, self.governor]), torch.stack([self.governor, self.dependent])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, weakref_slot=True)
class Sentences:
    """A batch of held-out sentences, shared by all heads.

    Attributes:
        queries: (B, Q) bool, the queries that count: all but PAD.
        keys: (B, K) bool, the keys that count: all but EOS and PAD.
        is_causal: Whether queries see only keys up to their own position. Then later offsets are no candidates, and
            arcs to later positions do not count.
        query_tokens: (B, Q) int64, for the duplicate-token and induction scores; `None` leaves them unmeasured. Use
            `None` for cross-attention, where the query's token is of another language.
        key_tokens: (B, K) int64, for these and the rare-token score.
        rarity: (V,) int64, frequency rank of each token in training, 0 the most frequent; `None` leaves the rare-token
            score unmeasured.
        n_frequent: A sentence counts for the rare-token score if the rank of its rarest token is at least this. Voita
            et al. 2019, section 5.3, use 500 for vocabularies of tens of thousands; scale it to a smaller vocabulary.
        arcs: The gold arcs; `None` leaves the syntactic scores unmeasured.
        offsets: (2, R) int64, the best fixed offset of each direction and relation, from `fit_offsets` on training
            sentences.

    Raises:
        UserError: If only some of the fields that a score needs are given.
    """

    queries: Tensor
    keys: Tensor
    is_causal: bool = False
    query_tokens: Tensor | None = None
    key_tokens: Tensor | None = None
    rarity: Tensor | None = None
    n_frequent: int = 500
    arcs: Arcs | None = None
    offsets: Tensor | None = None

    def __post_init__(self) -> None:
        if self.rarity is not None and self.key_tokens is None:
            raise _missing("key_tokens", "rarity")
        if self.query_tokens is not None and self.key_tokens is None:
            raise _missing("key_tokens", "query_tokens")
        if (self.arcs is None) != (self.offsets is None):
            raise _missing("offsets", "arcs")

    def allowed(self) -> Tensor:
        """(B, Q, K) bool, the pairs of query and key that count."""
        pairs_BQK = self.queries.unsqueeze(2) & self.keys.unsqueeze(1)
        return pairs_BQK.tril() if self.is_causal else pairs_BQK

    def batch(self, of: slice) -> "Sentences":
        """The sentences of a slice, for counting in parts when all at once do not fit into memory."""
        first, past, _ = of.indices(len(self.queries))
        arcs = self.arcs
        if arcs is not None:
            among = (arcs.sentence >= first) & (arcs.sentence < past)
            arcs = Arcs(
                relations=arcs.relations,
                sentence=arcs.sentence[among] - first,
                relation=arcs.relation[among],
                dependent=arcs.dependent[among],
                governor=arcs.governor[among],
            )
        return replace(
            self,
            queries=self.queries[first:past],
            keys=self.keys[first:past],
            query_tokens=None if self.query_tokens is None else self.query_tokens[first:past],
            key_tokens=None if self.key_tokens is None else self.key_tokens[first:past],
            arcs=arcs,
        )


R = TypeVar("R")


def once(function: Callable[[Sentences], R]) -> Callable[[Sentences], R]:
    """Computes a function once for each `Sentences`, which are looked at again at every probe."""
    known = WeakKeyDictionary[Sentences, R]()

    @functools.wraps(function)
    def of(sentences: Sentences) -> R:
        if sentences not in known:
            known[sentences] = function(sentences)
        return known[sentences]

    return of


def fit_offsets(arcs: Arcs, n_tokens: int, *, is_causal: bool = False) -> Tensor:
    """(2, R) the most frequent offset (key - query) of the arcs of each direction and relation; of ties, the nearest.

    Args:
        arcs: The arcs of training sentences.
        n_tokens: The length of the longest sentence.
        is_causal: Whether only offsets up to 0 are allowed.
    """
    R = len(arcs.relations)
    count = torch.zeros(2, R, 2 * n_tokens - 1, dtype=torch.int64)
    look, find = (each.cpu() for each in arcs.ends())
    place = find - look + n_tokens - 1
    for direction in range(2):
        is_seen = ((find <= look) | (not is_causal))[direction].long()
        count[direction].view(-1).index_add_(0, arcs.relation.cpu() * (2 * n_tokens - 1) + place[direction], is_seen)
    offset = torch.arange(1 - n_tokens, n_tokens)
    nearest_first = offset.abs().argsort(stable=True)
    chosen: Tensor = offset[nearest_first][count[..., nearest_first].argmax(-1)]
    return chosen.to(arcs.sentence.device)


def _missing(subject: str, other: str) -> UserError:
    return UserError(subject, given=None, expected=f"a tensor, as {other} is given", fix=f"give both or drop {other}")
