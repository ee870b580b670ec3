"""Counts what attention heads attend to, on one batch of sentences. The counts of several batches can be added.

Axes: ... any, such as trainings, layers and heads; B sentence, Q query, K key, R relation, P pattern, A arc.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from attnsweep.workloads.diagnostics.roles.sentences import Sentences, cached_by_sentences
from attnsweep.workloads.engine.streams import Streams

PATTERNS = ("previous_token", "duplicate_token", "induction")
N_PERMUTATIONS = 100
N_RAREST = 2
_SEED = 0
_BY_OFFSET = ("hits", "mass", "reach")


def pattern_mass(attention: Tensor, sentences: Sentences) -> tuple[Tensor, Tensor, Tensor]:
    """Each head's attention on three patterns, (..., P); that of uniform attention over the keys that count, (P,); and
    each head's total, (...). NaN for a pattern that is not measured.

      previous_token   key i - 1
      duplicate_token  keys j < i with the query's token
      induction        keys j <= i after a key with the query's token: x_(j-1) = x_i, j - 1 < i

    A head's score is the share of all its attention that falls on the pattern ("mul" in
    `transformer_lens.head_detector`). Queries without a key of the pattern count too.
    """
    design, uniform = _patterns(sentences)
    mass = (attention.flatten(-3) @ design.to(attention)).double()
    missing = len(PATTERNS) - len(uniform)
    pattern_P, uniform_P = (pad(value, (0, missing), value=torch.nan) for value in (mass[..., :-1], uniform))
    return pattern_P, uniform_P, mass[..., -1]


@cached_by_sentences
def _patterns(sentences: Sentences) -> tuple[Tensor, Tensor]:
    """(B Q K, P + 1): which pairs belong to each pattern, and which have a query that counts. And the mass on each
    pattern, (P,), of uniform attention."""
    allowed_BQK = sentences.allowed()
    before_QK = torch.ones_like(allowed_BQK[0]).tril(-1)
    previous = before_QK & ~before_QK.tril(-2)
    patterns = [previous.expand_as(allowed_BQK)]
    if sentences.query_tokens is not None and sentences.key_tokens is not None:
        is_same_BQK = (sentences.query_tokens.unsqueeze(2) == sentences.key_tokens.unsqueeze(1)) & before_QK
        # The equal token before such a key need not count itself, such as a sentence's end.
        after_same_BQK = torch.zeros_like(is_same_BQK)
        after_same_BQK[..., 1:] = is_same_BQK[..., :-1]
        patterns += [is_same_BQK, after_same_BQK]
    pattern_BQKP = torch.stack(patterns, -1) & allowed_BQK.unsqueeze(-1)
    any_key_BQK1 = sentences.queries.view(*allowed_BQK.shape[:2], 1, 1).expand(*allowed_BQK.shape, 1)
    n_keys = allowed_BQK.sum(-1, keepdim=True).clamp_min(1).unsqueeze(-1)
    uniform = (pattern_BQKP.double() / n_keys).sum((0, 1, 2))
    return torch.cat([pattern_BQKP, any_key_BQK1], -1).flatten(0, 2), uniform


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleCounts:
    """How often heads do what defines a role.

    Attributes:
        first_offset: The smallest offset (key - query): from the last query to the first key.
        sums: Counts and attention weights, summed over queries, by name: for each head and offset `hits`, the queries
            whose strongest key is there, and `mass`, the attention on it; for each offset `reach`, the queries that
            have a key there; `n_queries`; `pattern`, `uniform` and `total` of `pattern_mass`; and those of `count_arcs`
            and `count_rare`, if the sentences have what these need.
    """

    relations: tuple[str, ...]
    first_offset: int
    sums: Mapping[str, Tensor]

    def __add__(self, other: Self) -> "RoleCounts":
        assert self.relations == other.relations
        first = min(self.first_offset, other.first_offset)
        past = max(counts.first_offset + len(counts.sums["reach"]) for counts in (self, other))
        sums = {name: self._spread(name, first, past) + other._spread(name, first, past) for name in self.sums}
        return RoleCounts(relations=self.relations, first_offset=first, sums=sums)

    def _spread(self, name: str, first: int, past: int) -> Tensor:
        value = self.sums[name]
        if name not in _BY_OFFSET:
            return value
        return pad(value, (self.first_offset - first, past - self.first_offset - value.shape[-1]))


class Looks(NamedTuple):
    """Where heads look.

    Attributes:
        counted: The attention, (..., B, Q, K), 0 at pairs that do not count (`Sentences.allowed`).
        strongest: Each query's key with the most of it, (..., B, Q); -1 for queries without any, and where two keys
            tie: uniform attention has no strongest key.
    """

    counted: Tensor
    strongest: Tensor

    @classmethod
    def of(cls, attention: Tensor, sentences: Sentences) -> Self:
        counted = attention.masked_fill(~sentences.allowed(), 0.0)
        highest, key = counted.max(-1)
        is_unique = (counted == highest.unsqueeze(-1)).sum(-1) == 1
        return cls(counted, torch.where(is_unique & (highest > 0), key, -1))


def count_roles(attention: Tensor, sentences: Sentences, looks: Looks | None = None) -> RoleCounts:
    """The counts of one batch, for `role_scores`.

    Args:
        attention: Weights after softmax, (..., B, Q, K), captured in eval mode.
        looks: `Looks.of` this attention, if known already.
    """
    looks = looks or Looks.of(attention, sentences)
    pattern, uniform, total = pattern_mass(attention, sentences)
    sums = {"n_queries": sentences.queries.sum().double(), "pattern": pattern, "uniform": uniform, "total": total}
    sums |= _count_offsets(looks, sentences) | count_arcs(looks.strongest, sentences)
    sums |= count_rare(looks.strongest, sentences)
    relations = () if sentences.arcs is None else tuple(sentences.arcs.relations)
    return RoleCounts(relations=relations, first_offset=1 - attention.shape[-2], sums=sums)


def _count_offsets(looks: Looks, sentences: Sentences) -> dict[str, Tensor]:
    counted, strongest = looks
    (B, Q, K), leading = counted.shape[-3:], counted.shape[:-3]
    n_offsets, query_Q = Q + K - 1, torch.arange(Q, device=counted.device)
    where = (torch.arange(K, device=counted.device) - query_Q.unsqueeze(1) + Q - 1).flatten()
    summed = counted.sum(-3).double().flatten(-2)
    mass = summed.new_zeros(*leading, n_offsets).index_add_(-1, where, summed)
    reach = summed.new_zeros(n_offsets).index_add_(0, where, sentences.allowed().sum(0).double().flatten())
    # Queries without a strongest key are counted in one more entry, which is not returned.
    place = torch.where(strongest >= 0, strongest - query_Q + Q - 1, n_offsets).reshape(*leading, B * Q)
    hits = summed.new_zeros(*leading, n_offsets + 1).scatter_add(-1, place, torch.ones_like(place, dtype=torch.float64))
    return {"hits": hits[..., :n_offsets], "mass": mass, "reach": reach}


def count_arcs(strongest: Tensor, sentences: Sentences) -> dict[str, Tensor]:
    """By direction and relation, (..., 2, R): the arcs whose other end the query may see, `n_arcs`; of these, those
    whose other end is at the best fixed offset, `offset_hits`, and those where it is the head's strongest key,
    `arc_hits`."""
    arcs, offsets = sentences.arcs, sentences.offsets
    if arcs is None or offsets is None:
        return {}
    query, key = arcs.ends()
    relation_AR = one_hot(arcs.relation, len(arcs.relations)).double()
    is_counted = sentences.allowed()[arcs.sentence, query, key]
    is_hit = ((strongest[..., arcs.sentence, query] == key) & is_counted).double()
    is_at_offset = ((query + offsets[:, arcs.relation] == key) & is_counted).double()
    counted = {"arc_hits": is_hit, "offset_hits": is_at_offset, "n_arcs": is_counted.double()}
    return {name: value @ relation_AR for name, value in counted.items()}


def count_rare(strongest: Tensor, sentences: Sentences) -> dict[str, Tensor]:
    """In sentences whose rarest token is rare: the queries, `n_rare`, and for each head those whose strongest key is
    one of the `N_RAREST` rarest tokens, `rare_hits`; `permuted_hits` are by permuted frequency ranks, and show what
    chance explains. Source: Voita et al. 2019, section 5.3."""
    if sentences.rarity is None:
        return {}
    is_rarest, is_rare_B = _rarest(sentences)
    K = sentences.keys.shape[1]
    place = torch.where(strongest >= 0, strongest, K)
    n_looks = torch.zeros(*place.shape[:-1], K + 1, dtype=torch.float64, device=place.device)
    n_looks = n_looks.scatter_add(-1, place, torch.ones_like(place, dtype=torch.float64))[..., :K]
    hits = torch.einsum("...bk,pbk->...p", n_looks * is_rare_B.unsqueeze(1), is_rarest.double())
    n_rare = (sentences.queries & is_rare_B.unsqueeze(1)).sum().double()
    return {"rare_hits": hits[..., 0], "permuted_hits": hits[..., 1:], "n_rare": n_rare}


@cached_by_sentences
def _rarest(sentences: Sentences) -> tuple[Tensor, Tensor]:
    """Which keys are among the rarest of their sentence, by the ranks and by each permutation of them; and which
    sentences have a rare token."""
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
