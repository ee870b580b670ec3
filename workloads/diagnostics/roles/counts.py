"""Counts of where heads attend, on a batch of sentences. The counts of two batches add up to those of both together.

Axes: ... any number of axes such as lanes, layers and heads; B sentence, Q query, K key, O offset, R relation, P
permutation, A arc.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.diagnostics.roles.token_patterns import count_rare, pattern_mass

_BY_OFFSET = ("hits", "mass", "reach")


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleCounts:
    """The counts from which head roles are scored, summed over queries; `None` where a score was not measured.

    Attributes:
        relations: The names of the dependency relations.
        first_offset: The smallest offset (key - query), -(Q - 1): from the last query to the first key.
        hits: (..., O) the number of queries whose strongest key is at each offset.
        mass: (..., O) the attention on each offset.
        reach: (O,) the number of queries that have a key at each offset.
        n_queries: () the number of queries.
        pattern: (..., 3) the attention on each of the token patterns; `uniform`: (3,) the same for uniform attention.
        total: (...) all attention.
        arc_hits: (..., 2, R) the number of arcs whose other end is the query's strongest key; `offset_hits`: (2, R) the
            number of arcs whose other end is at the best fixed offset; `n_arcs`: (2, R) the number of arcs whose other
            end the query may see.
        rare_hits: (...) the number of queries, in sentences with a rare token, whose strongest key is one of the two
            rarest tokens; `permuted_hits`: (..., P) the same with frequency ranks permuted; `n_rare`: () the number of
            all queries in such sentences.
    """

    relations: tuple[str, ...]
    first_offset: int
    hits: Tensor
    mass: Tensor
    reach: Tensor
    n_queries: Tensor
    pattern: Tensor
    uniform: Tensor
    total: Tensor
    arc_hits: Tensor | None
    offset_hits: Tensor | None
    n_arcs: Tensor | None
    rare_hits: Tensor | None
    permuted_hits: Tensor | None
    n_rare: Tensor | None

    def __add__(self, other: Self) -> Self:
        """Adds the counts of two batches, whose sentences may differ in length."""
        assert self.relations == other.relations
        first = min(self.first_offset, other.first_offset)
        past = max(counts.first_offset + counts.reach.shape[0] for counts in (self, other))
        sums: dict[str, Any] = {}
        for field in fields(self):
            if isinstance(getattr(self, field.name), Tensor):
                own, others = (counts._spread(field.name, first, past) for counts in (self, other))
                sums[field.name] = own + others
        return replace(self, first_offset=first, **sums)

    def _spread(self, name: str, first: int, past: int) -> Tensor:
        """Returns a field. Its axis of offsets, if it has one, is padded with zeros to offsets `first` to `past` -
        1.
        """
        value: Tensor = getattr(self, name)
        if name not in _BY_OFFSET:
            return value
        return pad(value, (self.first_offset - first, past - self.first_offset - value.shape[-1]))


class Looks(NamedTuple):
    """Attention restricted to the valid pairs of query and key, and the strongest key of each query.

    Attributes:
        counted: (..., B, Q, K) the attention, 0 at pairs of query and key that do not count.
        strongest: (..., B, Q) the key with the most attention, among the keys that count. It is -1 for queries that do
            not count, for queries without any attention on such keys, and where two keys tie: uniform attention has no
            strongest key and must not count as looking at the first one.
    """

    counted: Tensor
    strongest: Tensor

    @classmethod
    def of(cls, attention: Tensor, sentences: Sentences) -> Self:
        """Restricts the attention of heads (..., B, Q, K) to valid pairs, and finds each query's strongest key."""
        counted = attention.masked_fill(~sentences.allowed(), 0.0)
        most, key = counted.max(-1)
        is_unique = (counted == most.unsqueeze(-1)).sum(-1) == 1
        return cls(counted, torch.where(is_unique & (most > 0), key, -1))


def count_roles(attention: Tensor, sentences: Sentences, looks: Looks | None = None) -> RoleCounts:
    """Counts where heads attend on one batch of sentences. `role_scores` turns the counts into scores.

    Args:
        attention: (..., B, Q, K) weights after softmax, captured in eval mode.
        sentences: The sentences.
        looks: The result of `Looks.of` on this attention, if it is known already.
    """
    Q, K = attention.shape[-2:]
    offset_QK = torch.arange(K, device=attention.device) - torch.arange(Q, device=attention.device).unsqueeze(1)
    allowed = sentences.allowed()
    counted, strongest = looks or Looks.of(attention, sentences)
    hits, mass, reach = _by_offset(counted, strongest, allowed, offset_QK + Q - 1)
    pattern, uniform, total = pattern_mass(attention, sentences)
    arcs = _count_arcs(strongest, allowed, sentences)
    rare = count_rare(strongest, sentences)
    return RoleCounts(
        relations=() if sentences.arcs is None else tuple(sentences.arcs.relations),
        first_offset=1 - Q,
        hits=hits,
        mass=mass,
        reach=reach,
        n_queries=sentences.queries.sum().double(),
        pattern=pattern,
        uniform=uniform,
        total=total,
        arc_hits=arcs[0],
        offset_hits=arcs[1],
        n_arcs=arcs[2],
        rare_hits=rare[0],
        permuted_hits=rare[1],
        n_rare=rare[2],
    )


def _by_offset(counted: Tensor, strongest: Tensor, allowed: Tensor, place_QK: Tensor) -> tuple[Tensor, ...]:
    B, Q, K = counted.shape[-3:]
    n_offsets, leading = Q + K - 1, counted.shape[:-3]
    summed = counted.sum(-3).double().flatten(-2)
    where = place_QK.flatten()
    mass = summed.new_zeros(*leading, n_offsets).index_add_(-1, where, summed)
    reach = summed.new_zeros(n_offsets).index_add_(0, where, allowed.sum(0).double().flatten())
    place = strongest - torch.arange(Q, device=strongest.device) + Q - 1
    # Queries without a strongest key are counted in an extra bin, which is cut off below.
    place = torch.where(strongest >= 0, place, n_offsets).reshape(*leading, B * Q)
    hits = summed.new_zeros(*leading, n_offsets + 1).scatter_add(-1, place, torch.ones_like(place, dtype=torch.float64))
    return hits[..., :n_offsets], mass, reach


def _count_arcs(strongest: Tensor, allowed: Tensor, sentences: Sentences) -> tuple[Tensor | None, ...]:
    arcs, offsets = sentences.arcs, sentences.offsets
    if arcs is None or offsets is None:
        return None, None, None
    look, find = arcs.ends()
    relation_AR = one_hot(arcs.relation, len(arcs.relations)).double()
    is_counted = allowed[arcs.sentence, look, find]
    is_hit = ((strongest[..., arcs.sentence, look] == find) & is_counted).double()
    is_at_offset = ((look + offsets[:, arcs.relation] == find) & is_counted).double()
    return is_hit @ relation_AR, is_at_offset @ relation_AR, is_counted.double() @ relation_AR
