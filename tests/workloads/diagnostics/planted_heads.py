"""Sentences, and attention heads on them with known roles. Axes: B sentence, T token, V word."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.sentences import Arcs, Sentences, fit_offsets

B, T, V = 600, 14, 80
EOS, PAD = V, V + 1


def _arcs(lengths: Tensor, generator: torch.Generator) -> Arcs:
    """Two relations with ends anywhere: `subject` once a sentence, `object` in most."""
    sentence, relation, ends = [], [], []
    for b, length in enumerate(lengths.tolist()):
        for r in range(2):
            if r == 0 or length > 7:
                sentence.append(b)
                relation.append(r)
                ends.append(torch.randperm(length, generator=generator)[:2])
    dependent, governor = torch.stack(ends).T
    return Arcs(
        relations=("subject", "object"),
        sentence=torch.tensor(sentence),
        relation=torch.tensor(relation),
        dependent=dependent,
        governor=governor,
    )


def planted_sentences() -> Sentences:
    """Sentences of Zipfian words with random arcs."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(6, T, (B,), generator=generator)
    zipf = 1.0 / torch.arange(1, V + 1)
    tokens = torch.multinomial(zipf, B * T, replacement=True, generator=generator).view(B, T)
    position = torch.arange(T)
    tokens = tokens.where(position < lengths.unsqueeze(1), PAD)
    tokens[torch.arange(B), lengths] = EOS
    words = position < lengths.unsqueeze(1)
    arcs = _arcs(lengths, generator)
    return Sentences(
        queries=words,
        keys=words,
        query_tokens=tokens,
        key_tokens=tokens,
        rarity=torch.cat([torch.arange(V), torch.tensor([0, 0])]),
        n_frequent=20,
        arcs=arcs,
        offsets=fit_offsets(_arcs(lengths, generator), T),
    )


def _towards(pattern: Tensor, strength: float = 0.8) -> Tensor:
    """Attention with share `strength` on a pattern and the rest uniform; rows without a pattern are uniform."""
    pattern = pattern.double()
    uniform = torch.full_like(pattern, 1.0 / pattern.shape[-1])
    share = pattern / pattern.sum(-1, keepdim=True).clamp_min(1.0)
    has_one = pattern.sum(-1, keepdim=True) > 0
    return torch.where(has_one, strength * share + (1 - strength) * uniform, uniform)


def shift(k: int) -> Callable[[Sentences], Tensor]:
    return lambda _: _towards(torch.diag(torch.ones(T - abs(k)), k).expand(B, T, T))


def _band(_: Sentences) -> Tensor:
    position = torch.arange(T)
    return _towards(((position - position.unsqueeze(1)).abs() <= 2).expand(B, T, T))


def _one_column(_: Sentences) -> Tensor:
    pattern = torch.zeros(B, T, T)
    pattern[:, :, 2] = 1.0
    return _towards(pattern)


def uniform(_: Sentences) -> Tensor:
    return torch.full((B, T, T), 1.0 / T, dtype=torch.float64)


def _noise(_: Sentences) -> Tensor:
    draws = torch.randn(B, T, T, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return (3 * draws).softmax(-1)


def _duplicate(sentences: Sentences) -> Tensor:
    tokens = sentences.query_tokens
    assert tokens is not None
    return _towards((tokens.unsqueeze(2) == tokens.unsqueeze(1)) & torch.ones(T, T).tril(-1).bool())


def _induction(sentences: Sentences) -> Tensor:
    tokens = sentences.query_tokens
    assert tokens is not None
    same = (tokens.unsqueeze(2) == tokens.unsqueeze(1)) & torch.ones(T, T).tril(-1).bool()
    return _towards(torch.cat([torch.zeros(B, T, 1, dtype=torch.bool), same[..., :-1]], -1))


def _rarest(sentences: Sentences) -> Tensor:
    assert sentences.rarity is not None
    assert sentences.key_tokens is not None
    rarest = sentences.rarity[sentences.key_tokens].masked_fill(~sentences.keys, -1).argmax(1)
    return _towards(torch.nn.functional.one_hot(rarest, T).unsqueeze(1).expand(B, T, T))


def _certain_tokens(sentences: Sentences) -> Tensor:
    """Attention to tokens by a preference that is independent of their rarity."""
    assert sentences.key_tokens is not None
    preference = torch.randperm(V + 2, generator=torch.Generator().manual_seed(3))
    liked = preference[sentences.key_tokens].masked_fill(~sentences.keys, -1).argmax(1)
    return _towards(torch.nn.functional.one_hot(liked, T).unsqueeze(1).expand(B, T, T))


def _arc_heads(direction: int, relation: int) -> Callable[[Sentences], Tensor]:
    def plant(sentences: Sentences) -> Tensor:
        assert sentences.arcs is not None
        arcs = sentences.arcs
        look, find = (end[direction] for end in arcs.ends())
        among = arcs.relation == relation
        pattern = torch.zeros(B, T, T)
        pattern[arcs.sentence[among], look[among], find[among]] = 1.0
        return _towards(pattern)

    return plant


PLANTED: dict[str, tuple[Callable[[Sentences], Tensor], str]] = {
    "identity": (shift(0), "positional"),
    "next": (shift(1), "positional"),
    "previous": (shift(-1), "positional"),
    "three back": (shift(-3), "positional"),
    "band": (_band, "none"),
    "one column": (_one_column, "none"),
    "uniform": (uniform, "none"),
    "noise": (_noise, "none"),
    "duplicate token": (_duplicate, "none"),
    "induction": (_induction, "none"),
    "rarest token": (_rarest, "rare_token"),
    "certain tokens": (_certain_tokens, "none"),
    "subject to governor": (_arc_heads(0, 0), "syntactic"),
    "object to dependent": (_arc_heads(1, 1), "syntactic"),
}
