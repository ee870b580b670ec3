"""Queries whose strongest key is one of the sentence's two rarest tokens (Voita et al. 2019, 5.3).

The null permutes the vocabulary's frequency ranks: a head that looks at certain tokens, for whatever reason but their
rarity, scores as much under it. The sentences stay those whose rarest token is rare indeed.
Axes: ... heads; B sentence, Q query, K key, P permutation, V token of the vocabulary.
"""

import functools

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.engine.streams import Streams

N_PERMUTATIONS = 100
N_RAREST = 2
_SEED = 0


def count_rare(strongest: Tensor, sentences: Sentences) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Hits (...), hits by permuted ranks (..., P), and the number of queries that could hit."""
    if sentences.rarity is None or sentences.key_tokens is None:
        return None, None, None
    tokens, keys = sentences.key_tokens, sentences.keys
    is_rare_B = sentences.rarity[tokens].masked_fill(~keys, -1).amax(1) >= sentences.n_frequent
    K = keys.shape[1]
    place = torch.where(strongest >= 0, strongest, K)
    looks = torch.zeros(*place.shape[:-1], K + 1, dtype=torch.float64, device=place.device)
    looks = looks.scatter_add(-1, place, torch.ones_like(place, dtype=torch.float64))[..., :K]
    looks = looks * is_rare_B.unsqueeze(1)
    ranks = torch.cat([sentences.rarity.unsqueeze(0), _permuted(sentences.rarity)])
    is_rarest = _rarest(ranks[:, tokens], keys).double()
    hits = torch.einsum("...bk,pbk->...p", looks, is_rarest)
    return hits[..., 0], hits[..., 1:], (sentences.queries & is_rare_B.unsqueeze(1)).sum().double()


def _rarest(rank_PBK: Tensor, keys: Tensor) -> Tensor:
    """(P, B, K) whether a key is one of the two rarest, or as rare as the second."""
    rank = rank_PBK.masked_fill(~keys, -1)
    second = rank.topk(min(N_RAREST, rank.shape[-1]), dim=-1).values[..., -1:]
    return (rank >= second) & keys


def _permuted(rarity: Tensor) -> Tensor:
    return rarity[_permutations(len(rarity), rarity.device)]


@functools.lru_cache(maxsize=16)
def _permutations(n_words: int, device: torch.device) -> Tensor:
    streams = Streams(torch.tensor([_SEED], device=device))
    return streams.uniform("roles.rarity", (N_PERMUTATIONS, n_words))[0].argsort(-1)
