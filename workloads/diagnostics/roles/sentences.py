"""Annotated sentences on which heads are scored. Axes: B sentence, Q query, K key."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Arcs:
    """The gold arcs of sentences, each from a word's position (`dependent`, int64) to its governor's. Queries and keys
    must be the same tokens."""

    relations: Sequence[str]
    sentence: Tensor
    relation: Tensor
    dependent: Tensor
    governor: Tensor

    def ends(self) -> tuple[Tensor, Tensor]:
        """Positions of queries and of keys, (2, n_arcs): the dependent asks for its governor, then vice versa."""
        return torch.stack([self.dependent, self.governor]), torch.stack([self.governor, self.dependent])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, weakref_slot=True)
class Sentences:
    """A batch of held-out sentences, with what the role scores of heads need.

    Attributes:
        queries: The queries that count, bool (n_sentences, n_queries): all but PAD.
        keys: The keys that count, bool (n_sentences, n_keys): all but EOS and PAD.
        is_causal: Whether queries see only keys up to their own position; then no later position counts.
        query_tokens, key_tokens: int64; without those of the queries, as in cross-attention, the duplicate-token and
            induction scores are not measured.
        rarity: The frequency rank of each token of the vocabulary in the training data, int64, 0 the most frequent;
            `None` leaves the rare-token score unmeasured.
        n_frequent: A sentence counts for the rare-token score if the rank of its rarest token is at least this (Voita
            et al. 2019, section 5.3); use less for a small vocabulary.
        arcs: The gold arcs; `None` leaves the syntactic scores unmeasured.
        offsets: The best one of each direction and relation, int64 (2, n_relations): `fit_offsets` of training data.
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
        for needed, other in (("key_tokens", "rarity"), ("key_tokens", "query_tokens"), ("offsets", "arcs")):
            if getattr(self, needed) is None and getattr(self, other) is not None:
                expected = f"a tensor, because {other} is given"
                raise UserError(needed, given=None, expected=expected, fix="give both, or neither of them")

    def allowed(self) -> Tensor:
        """Which pairs count, (n_sentences, n_queries, n_keys): query and key do, and no mask hides the key."""
        pairs_BQK = self.queries.unsqueeze(2) & self.keys.unsqueeze(1)
        return pairs_BQK.tril() if self.is_causal else pairs_BQK

    def batch(self, of: slice) -> "Sentences":
        """Some of the sentences: all at once may not fit into memory."""
        first, past, _ = of.indices(len(self.queries))
        arcs = self.arcs
        if arcs is not None:
            is_inside = (arcs.sentence >= first) & (arcs.sentence < past)
            columns = ("sentence", "relation", "dependent", "governor")
            arcs = replace(arcs, **{name: getattr(arcs, name)[is_inside] for name in columns})
            arcs = replace(arcs, sentence=arcs.sentence - first)
        by_sentence = {name: getattr(self, name) for name in ("queries", "keys", "query_tokens", "key_tokens")}
        rows: dict[str, Any] = {name: None if value is None else value[of] for name, value in by_sentence.items()}
        return replace(self, **rows, arcs=arcs)


Computed = TypeVar("Computed")


def cached_by_sentences(function: Callable[[Sentences], Computed]) -> Callable[[Sentences], Computed]:
    """By the object: all probes of a training use the same."""
    results = WeakKeyDictionary[Sentences, Computed]()

    @functools.wraps(function)
    def cached(sentences: Sentences) -> Computed:
        if sentences not in results:
            results[sentences] = function(sentences)
        return results[sentences]

    return cached


def fit_offsets(arcs: Arcs, n_tokens: int, *, is_causal: bool = False) -> Tensor:
    """The most frequent offset (key - query) of each relation's arcs, of equal ones that nearest to 0, (2,
    n_relations), by `Arcs.ends`. With `is_causal` only keys up to the query count."""
    count = torch.zeros(2, len(arcs.relations), 2 * n_tokens - 1, dtype=torch.int64)
    query, key = (positions.cpu() for positions in arcs.ends())
    place = key - query + n_tokens - 1
    for direction in range(2):
        is_seen = ((key <= query) | (not is_causal))[direction].long()
        count[direction].view(-1).index_add_(0, arcs.relation.cpu() * (2 * n_tokens - 1) + place[direction], is_seen)
    offset = torch.arange(1 - n_tokens, n_tokens)
    nearest_first = offset.abs().argsort(stable=True)
    chosen: Tensor = offset[nearest_first][count[..., nearest_first].argmax(-1)]
    return chosen.to(arcs.sentence.device)
