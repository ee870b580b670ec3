"""What is counted of attention on a batch of sentences; counts of batches add up to those of their pool.

Axes: ... lanes, layers, heads in any number; B sentence, Q query, K key, O offset, R relation, P permutation.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from workloads.diagnostics.roles.rare_tokens import count_rare
from workloads.diagnostics.roles.sentences import Arcs, Sentences
from workloads.diagnostics.roles.token_patterns import pattern_mass


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleCounts:
    """Sums over queries of some sentences; `None` where a score was not measured.

    Attributes:
        relations: Names of the relations.
        first_offset: The least offset, -(Q - 1): the last query's to the first key.
        hits: (..., O) queries whose strongest key is at each offset.
        mass: (..., O) attention on each offset.
        reach: (O,) queries that have a key there.
        n_queries: () queries.
        pattern: (..., 3) mass on each of the token patterns; `uniform`: (3,) the same of uniform attention.
        total: (...) mass in all.
        arc_hits: (..., 2, R) arcs found; `offset_hits`: (2, R) by the fixed offset; `n_arcs`: (R,).
        rare_hits: (...) queries of rare sentences whose strongest key is one of the two rarest;
            `permuted_hits`: (..., P) with ranks permuted; `n_rare`: () queries of such sentences.
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
        """The pool of two batches, padded to the same length and with the same things measured."""
        assert (self.relations, self.first_offset) == (other.relations, other.first_offset)
        sums = {}
        for field in fields(self):
            one, two = getattr(self, field.name), getattr(other, field.name)
            if isinstance(one, Tensor):
                sums[field.name] = one + two
        return replace(self, **sums)


def count_roles(attention: Tensor, sentences: Sentences) -> RoleCounts:
    """Counts of heads on one batch of sentences.

    Args:
        attention: (..., B, Q, K) weights after softmax, captured in eval mode.
        sentences: What they are.
    """
    Q, K = attention.shape[-2:]
    offset_QK = torch.arange(K, device=attention.device) - torch.arange(Q, device=attention.device).unsqueeze(1)
    allowed = sentences.queries.unsqueeze(2) & sentences.keys.unsqueeze(1)
    counted = attention.masked_fill(~allowed, 0.0)
    strongest = _strongest(counted)
    hits, mass, reach = _by_offset(counted, strongest, allowed, offset_QK + Q - 1)
    pattern, uniform, total = pattern_mass(attention, allowed, sentences)
    arcs = _count_arcs(strongest, sentences.arcs, sentences.offsets)
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


def strongest_keys(attention: Tensor, sentences: Sentences) -> Tensor:
    """(..., B, Q) the key with the most attention among those that count.

    -1 where two share the most (uniform attention has no strongest key, and must not count as looking at the first),
    where none has any, and for queries that do not count.
    """
    allowed = sentences.queries.unsqueeze(2) & sentences.keys.unsqueeze(1)
    return _strongest(attention.masked_fill(~allowed, 0.0))


def _strongest(counted: Tensor) -> Tensor:
    most, key = counted.max(-1)
    is_one = (counted == most.unsqueeze(-1)).sum(-1) == 1
    return torch.where(is_one & (most > 0), key, -1)


def _by_offset(counted: Tensor, strongest: Tensor, allowed: Tensor, place_QK: Tensor) -> tuple[Tensor, ...]:
    B, Q, K = counted.shape[-3:]
    n_offsets, leading = Q + K - 1, counted.shape[:-3]
    summed = counted.sum(-3).double().flatten(-2)
    where = place_QK.flatten()
    mass = summed.new_zeros(*leading, n_offsets).index_add_(-1, where, summed)
    reach = summed.new_zeros(n_offsets).index_add_(0, where, allowed.sum(0).double().flatten())
    place = strongest - torch.arange(Q, device=strongest.device) + Q - 1
    # One bin more takes the queries without a strongest key.
    place = torch.where(strongest >= 0, place, n_offsets).reshape(*leading, B * Q)
    hits = summed.new_zeros(*leading, n_offsets + 1).scatter_add(-1, place, torch.ones_like(place, dtype=torch.float64))
    return hits[..., :n_offsets], mass, reach


def _count_arcs(strongest: Tensor, arcs: Arcs | None, offsets: Tensor | None) -> tuple[Tensor | None, ...]:
    if arcs is None or offsets is None:
        return None, None, None
    look, find = arcs.ends()
    one_hot_AR = torch.nn.functional.one_hot(arcs.relation, len(arcs.relations)).double()
    found = (strongest[..., arcs.sentence, look] == find).double()
    by_offset = (look + offsets[:, arcs.relation] == find).double()
    return found @ one_hot_AR, by_offset @ one_hot_AR, one_hot_AR.sum(0)
