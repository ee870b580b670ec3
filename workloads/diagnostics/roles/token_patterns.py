"""Previous-token, duplicate-token and induction patterns, as TransformerLens's head detector defines them.

    previous_token   key i - 1
    duplicate_token  keys j < i with the query's token
    induction        keys j <= i after one with the query's token: x_(j-1) = x_i, j - 1 < i

The score is the share of all attention that falls on the pattern ("mul" in `transformer_lens.head_detector`). Queries
without such a key count too, so that no head reaches 1 on text where few tokens repeat. Only the past counts, by its
definition: a head of an encoder that looks both ways scores what it looks back.
Axes: ... heads; B sentence, Q query, K key.
"""

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.sentences import Sentences

PATTERNS = ("previous_token", "duplicate_token", "induction")


def pattern_mass(attention: Tensor, allowed_BQK: Tensor, sentences: Sentences) -> tuple[Tensor, Tensor, Tensor]:
    """Attention on each pattern (..., 3), that of attention uniform over keys that count (3,), and in all (...).

    NaN for patterns that are not measured.
    """
    Q, K = attention.shape[-2:]
    before_QK = torch.ones(Q, K, dtype=torch.bool, device=attention.device).tril(-1)
    previous = before_QK & ~before_QK.tril(-2)
    patterns = [previous.expand_as(allowed_BQK)]
    if sentences.query_tokens is not None and sentences.key_tokens is not None:
        same = (sentences.query_tokens.unsqueeze(2) == sentences.key_tokens.unsqueeze(1)) & before_QK
        # A pattern may start from a key that does not count itself, never from padding beyond the sentence.
        after = torch.zeros_like(same)
        after[..., 1:] = same[..., :-1]
        patterns += [same, after]
    of_BQKP = torch.stack(patterns, -1) & allowed_BQK.unsqueeze(-1)
    everything = sentences.queries.view(*allowed_BQK.shape[:2], 1, 1).expand(*allowed_BQK.shape, 1)
    design = torch.cat([of_BQKP, everything], -1).flatten(0, 2).to(attention)
    mass = (attention.flatten(-3) @ design).double()
    n_keys = allowed_BQK.sum(-1, keepdim=True).clamp_min(1).unsqueeze(-1)
    uniform = (of_BQKP.double() / n_keys).sum((0, 1, 2))
    missing = mass.new_full((len(PATTERNS) - len(patterns),), torch.nan)
    of_pattern = mass[..., :-1]
    return (
        torch.cat([of_pattern, missing.expand(*of_pattern.shape[:-1], -1)], -1),
        torch.cat([uniform, missing]),
        mass[..., -1],
    )
