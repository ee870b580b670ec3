"""Counts what attention heads attend to, on one batch of sentences. The counts of several batches can be added.

Axes: ... any number of axes such as trainings, layers and heads; B sentence, Q query, K key, O offset, R relation, P
pattern or permutation, A arc, V token of the vocabulary.
"""

import functools
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from attnsweep.workloads.diagnostics.roles.sentences import Sentences, once
from attnsweep.workloads.engine.streams import Streams

PATTERNS = ("previous_token", "duplicate_token", "induction")


def pattern_mass(attention: Tensor, sentences: Sentences) -> tuple[Tensor, Tensor, Tensor]:
    """The attention of each head on three patterns, the same for uniform attention over the keys that count, and each
    head's total; NaN for a pattern that is not measured.

      previous_token   key i - 1
      duplicate_token  keys j < i with the query's token
      induction        keys j <= i after a key with the query's token: x_(j-1) = x_i, j - 1 < i

    A head's score is the share of all its attention that falls on the pattern ("mul" in
    `transformer_lens.head_detector`). Queries without a key of the pattern count too, so no head reaches 1 on text in
    which few tokens repeat; attention on later keys lowers the score.
    """
    design, uniform = _patterns(sentences)
    mass = (attention.flatten(-3) @ design.to(attention)).double()
    missing = mass.new_full((len(PATTERNS) - len(uniform),), torch.nan)
    pattern_P = mass[..., :-1]
    return (
        torch.cat([pattern_P, missing.expand(*pattern_P.shape[:-1], -1)], -1),
        torch.cat([uniform, missing]),
        mass[..., -1],
    )


@once
def _patterns(sentences: Sentences) -> tuple[Tensor, Tensor]:
    allowed_BQK = sentences.allowed()
    before_QK = torch.ones_like(allowed_BQK[0]).tril(-1)
    previous = before_QK & ~before_QK.tril(-2)
    patterns = [previous.expand_as(allowed_BQK)]
    if sentences.query_tokens is not None and sentences.key_tokens is not None:
        same = (sentences.query_tokens.unsqueeze(2) == sentences.key_tokens.unsqueeze(1)) & before_QK
        # The key right after an earlier equal token, which itself need not count, such as a sentence's end.
        after = torch.zeros_like(same)
        after[..., 1:] = same[..., :-1]
        patterns += [same, after]
    pattern_BQKP = torch.stack(patterns, -1) & allowed_BQK.unsqueeze(-1)
    any_key_BQK1 = sentences.queries.view(*allowed_BQK.shape[:2], 1, 1).expand(*allowed_BQK.shape, 1)
    n_keys = allowed_BQK.sum(-1, keepdim=True).clamp_min(1).unsqueeze(-1)
    uniform = (pattern_BQKP.double() / n_keys).sum((0, 1, 2))
    return torch.cat([pattern_BQKP, any_key_BQK1], -1).flatten(0, 2), uniform


N_PERMUTATIONS = 100
N_RAREST = 2
_SEED = 0


def count_rare(strongest: Tensor, sentences: Sentences) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Counts the queries whose strongest key (-1: none), (..., n_sentences, n_queries), is one of the two rarest tokens
    of their sentence: by the true frequency ranks, and by permutations of the ranks, which show what chance explains;
    and all queries.

    All counts are of the same sentences: those whose rarest token is rare. Source: Voita et al. 2019, section 5.3.
    """
    if sentences.rarity is None or sentences.key_tokens is None:
        return None, None, None
    is_rarest, is_rare_B = _rarest(sentences)
    K = sentences.keys.shape[1]
    place = torch.where(strongest >= 0, strongest, K)
    looks = torch.zeros(*place.shape[:-1], K + 1, dtype=torch.float64, device=place.device)
    looks = looks.scatter_add(-1, place, torch.ones_like(place, dtype=torch.float64))[..., :K]
    looks = looks * is_rare_B.unsqueeze(1)
    hits = torch.einsum("...bk,pbk->...p", looks, is_rarest.double())
    return hits[..., 0], hits[..., 1:], (sentences.queries & is_rare_B.unsqueeze(1)).sum().double()


@once
def _rarest(sentences: Sentences) -> tuple[Tensor, Tensor]:
    tokens, keys, rarity = sentences.key_tokens, sentences.keys, sentences.rarity
    assert tokens is not None
    assert rarity is not None
    is_rare_B = rarity[tokens].masked_fill(~keys, -1).amax(1) >= sentences.n_frequent
    ranks = torch.cat([rarity.unsqueeze(0), rarity[_permutations(len(rarity), rarity.device)]])
    rank = ranks[:, tokens].masked_fill(~keys, -1)
    second = rank.topk(min(N_RAREST, rank.shape[-1]), dim=-1).values[..., -1:]
    return (rank >= second) & keys, is_rare_B


@functools.lru_cache(maxsize=16)
def _permutations(n_words: int, device: torch.device) -> Tensor:
    streams = Streams(torch.tensor([_SEED], device=device))
    return streams.uniform("roles.rarity", (N_PERMUTATIONS, n_words))[0].argsort(-1)


_BY_OFFSET = ("hits", "mass", "reach")


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleCounts:
    """How often heads do what defines a role: counts and attention weights, summed over queries; `None` if not counted.

    Attributes:
        first_offset: The smallest offset (key - query): from the last query to the first key.
        hits: For each head and offset, the number of queries whose strongest key is at the offset.
        mass: For each head and offset, the attention on the offset.
        reach: For each offset, the number of queries that have a key there.
        pattern: For each head, its attention on each token pattern; `uniform` is that of uniform attention.
        total: For each head, all its attention.
        arc_hits: For each head, direction and relation, the number of arcs whose other end is the query's strongest
            key; `offset_hits` is the number of arcs whose other end is at the best fixed offset, and `n_arcs` that of
            arcs whose other end the query may see.
        rare_hits: For each head, the number of queries, in sentences with a rare token, whose strongest key is one of
            the two rarest tokens; `permuted_hits` by permuted frequency ranks, `n_rare` that of all such queries.
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
        value: Tensor = getattr(self, name)
        if name not in _BY_OFFSET:
            return value
        return pad(value, (self.first_offset - first, past - self.first_offset - value.shape[-1]))


class Looks(NamedTuple):
    """The attention of each head where neither query nor key is padding and no mask hides the key.

    Attributes:
        counted: The attention (..., n_sentences, n_queries, n_keys), 0 at pairs of query and key that do not count.
        strongest: For each query the key with the most attention, among the keys that count. It is -1 for queries that
            do not count, for queries without any attention on such keys, and where two keys tie: uniform attention has
            no strongest key and must not count as looking at the first one.
    """

    counted: Tensor
    strongest: Tensor

    @classmethod
    def of(cls, attention: Tensor, sentences: Sentences) -> Self:
        """Keeps the pairs that count, and finds each query's strongest key."""
        counted = attention.masked_fill(~sentences.allowed(), 0.0)
        most, key = counted.max(-1)
        is_unique = (counted == most.unsqueeze(-1)).sum(-1) == 1
        return cls(counted, torch.where(is_unique & (most > 0), key, -1))


def count_roles(attention: Tensor, sentences: Sentences, looks: Looks | None = None) -> RoleCounts:
    """Counts what heads attend to on one batch, for `role_scores`.

    Args:
        attention: Weights after softmax, (..., n_sentences, n_queries, n_keys), captured in eval mode.
        looks: `Looks.of` this attention, if known already.
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
    # Queries without a strongest key are counted in one more entry, which is not returned.
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
