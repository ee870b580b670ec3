"""Counts of attention that need the tokens of a sentence: on patterns of repeated tokens, and on rare tokens.

Axes: ... any number of axes of heads; B sentence, Q query, K key, P pattern or permutation, V token of the vocabulary.
"""

import functools

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.sentences import Sentences, once
from attnsweep.workloads.engine.streams import Streams

PATTERNS = ("previous_token", "duplicate_token", "induction")


def pattern_mass(attention: Tensor, sentences: Sentences) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the attention on each token pattern (..., 3), that of uniform attention (3,), and the total (...).

        previous_token   key i - 1
        duplicate_token  keys j < i with the query's token
        induction        keys j <= i after a key with the query's token: x_(j-1) = x_i, j - 1 < i

    Uniform attention is uniform over the keys that count. A pattern that is not measured is NaN. A head's score is the
    share of all its attention that falls on the pattern ("mul" in `transformer_lens.head_detector`). Queries without a
    key of the pattern count too, so no head reaches 1 on text in which few tokens repeat. By definition only earlier
    keys count, so attention on later keys lowers the score.
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
    """Returns which places (B Q K) belong to each pattern, and the sum of uniform attention on each pattern. The first
    result has a last column for all attention: it is true at each query that counts.
    """
    allowed_BQK = sentences.allowed()
    before_QK = torch.ones_like(allowed_BQK[0]).tril(-1)
    previous = before_QK & ~before_QK.tril(-2)
    patterns = [previous.expand_as(allowed_BQK)]
    if sentences.query_tokens is not None and sentences.key_tokens is not None:
        same = (sentences.query_tokens.unsqueeze(2) == sentences.key_tokens.unsqueeze(1)) & before_QK
        # The token before the key of an induction head may be one that does not count, such as the end of a sentence.
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
    """Counts how often the strongest key is a rare token: (...), the same for permuted frequency ranks (..., P), and
    the number of queries.

    A hit is a query whose strongest key is one of the sentence's two rarest tokens (Voita et al. 2019, section 5.3).
    Permuting the vocabulary's frequency ranks gives a null: a head that prefers certain tokens for a reason other than
    rarity scores as much with permuted ranks. Both are counted in the same sentences, whose rarest token is rare.

    Args:
        strongest: (..., B, Q) the strongest key of each query (`Looks`), or -1.
        sentences: The sentences. Without `rarity` or `key_tokens`, all three results are `None`.
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
    """Returns which keys are the two rarest of their sentence, (P + 1, B, K), and which sentences contain a rare token,
    (B,).

    The first entry uses the frequency ranks, the others permutations of the ranks. A sentence counts if its rarest
    token is rare.
    """
    tokens, keys, rarity = sentences.key_tokens, sentences.keys, sentences.rarity
    assert tokens is not None
    assert rarity is not None
    is_rare_B = rarity[tokens].masked_fill(~keys, -1).amax(1) >= sentences.n_frequent
    ranks = torch.cat([rarity.unsqueeze(0), _permuted(rarity)])
    rank = ranks[:, tokens].masked_fill(~keys, -1)
    second = rank.topk(min(N_RAREST, rank.shape[-1]), dim=-1).values[..., -1:]
    return (rank >= second) & keys, is_rare_B


def _permuted(rarity: Tensor) -> Tensor:
    return rarity[_permutations(len(rarity), rarity.device)]


@functools.lru_cache(maxsize=16)
def _permutations(n_words: int, device: torch.device) -> Tensor:
    streams = Streams(torch.tensor([_SEED], device=device))
    return streams.uniform("roles.rarity", (N_PERMUTATIONS, n_words))[0].argsort(-1)
