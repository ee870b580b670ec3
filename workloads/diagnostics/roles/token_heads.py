"""Scores and roles of the heads of many trainings, from their attention on held-out tokens.

Axes: L lane, N layer, H head, B sequence, T token, P pattern.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.diagnostics.roles.token_patterns import PATTERNS, pattern_mass
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes, P
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.vocabulary import NO_ROLE

PATTERN_SCORE_NAMES = (*PATTERNS, *(f"{pattern}_uniform" for pattern in PATTERNS))
"""The names of the scores that `score_patterns` returns, for a workload's `head_score_names`."""

ROLE_SHARE = 0.5
"""A head has the role of a pattern if more than this share of its attention falls on the pattern. Our choice."""

_ROLES = ("previous_token", "induction")


def score_patterns(
    module: nn.Module, attention: Callable[[nn.Module, Tensor], Tensor], lanes: Lanes[P], state: State, batch: Batch
) -> HeadScores:
    """Scores causal attention heads on token patterns and labels their roles. A workload's `score_heads` may consist of
    this call.

    A score (L, N, H) is the share of a head's attention that falls on the pattern, summed over the queries that count.
    The score `<pattern>_uniform` is the same for attention that is uniform over the tokens that a query sees. The role
    is `previous_token` or `induction` if that score is above `ROLE_SHARE`, else `none`.

    Args:
        module: The module of ONE training, as built.
        attention: Returns the attention weights (N, B, H, T, T) of one training's module on its tokens (B, T).
        lanes: The L trainings.
        state: Their parameters and buffers, (L, ...) by name.
        batch: `token` (L, B, T) int64. `counts` (L, B, T) bool, the queries at which `induction` and `duplicate_token`
            are scored: those whose predictions count, so a head that always looks at the token to copy reaches 1.
            `needs_previous` (L, B, T) bool, the queries at which `previous_token` is scored; the first token is left
            out, because no token precedes it.
    """

    def masses(module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        return _masses(attention(module, batch["token"]), batch)

    template = module.to(lanes.device, lanes.dtype)
    read = {name: batch[name] for name in ("token", "counts", "needs_previous")}
    with torch.no_grad():
        mass_LNHP, uniform_LP = over_lanes(template, masses)(*parted(template, state), read)
    scores: dict[str, NDArray[np.float64]] = {
        pattern: mass_LNHP[..., index].cpu().numpy() for index, pattern in enumerate(PATTERNS)
    }
    for index, pattern in enumerate(PATTERNS):
        uniform_L11 = uniform_LP[:, index].view(-1, 1, 1)
        scores[f"{pattern}_uniform"] = uniform_L11.expand(mass_LNHP.shape[:3]).cpu().numpy()
    return HeadScores(scores=scores, role=label_patterns(scores))


def label_patterns(scores: dict[str, NDArray[np.float64]]) -> NDArray[np.str_]:
    """Returns the role of each head, (L, N, H): `previous_token` or `induction` if that score is above `ROLE_SHARE`. If
    both are, which can happen when a segment has only one token, the role is `previous_token`; if neither, `none`."""
    return np.select([scores[role] > ROLE_SHARE for role in _ROLES], _ROLES, NO_ROLE)


def _masses(weight_NBHTT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Returns the fraction of attention on each pattern, (N, H, P), and the same for uniform attention, (P,)."""
    weight_NHBTT = weight_NBHTT.transpose(1, 2)
    has_previous_T = torch.arange(weight_NBHTT.shape[-1], device=weight_NBHTT.device) > 0
    masses = []
    for index, pattern in enumerate(PATTERNS):
        query_BT = batch["needs_previous"] & has_previous_T if pattern == "previous_token" else batch["counts"]
        masses.append(_mass(weight_NHBTT, query_BT, batch["token"], index))
    head_masses, uniform = zip(*masses, strict=True)
    return torch.stack(head_masses, -1), torch.stack(uniform)


def _mass(weight_NHBTT: Tensor, query_BT: Tensor, token_BT: Tensor, index: int) -> tuple[Tensor, Tensor]:
    sentences = Sentences(
        queries=query_BT, keys=torch.ones_like(query_BT), is_causal=True, query_tokens=token_BT, key_tokens=token_BT
    )
    mass_NHP, uniform_P, total_NH = pattern_mass(weight_NHBTT, sentences)
    return mass_NHP[..., index] / total_NH, uniform_P[index] / query_BT.sum()
