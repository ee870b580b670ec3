"""Scores of a GPT's attention heads, at each probe. Axes: L lane, N block, H head, B sequence, T token."""

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.diagnostics.roles import Sentences
from attnsweep.workloads.diagnostics.roles.token_patterns import PATTERNS, pattern_mass
from attnsweep.workloads.engine.contract import Batch, HeadScores
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.gpt.data import GPTLanes, looked_at_sequences
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.vocabulary import NO_ROLE

SCORE_NAMES = (*PATTERNS, *(f"{pattern}_uniform" for pattern in PATTERNS))
ROLE_SHARE = 0.5
"""A head has the role of a pattern if more than this share of its attention falls on it. Ours."""

_N_SEQUENCES = 32
_ROLES = ("previous_token", "induction")


def score_heads(template: GPT, lanes: GPTLanes, state: State) -> HeadScores:
    """Scores (L, N, H) and roles on sequences that no step sees.

    Only the queries whose predictions count are scored, so a head that always looks at the token to copy reaches 1.

    Args:
        template: A model of the pack's shape.
        lanes: The L trainings.
        state: Their parameters and buffers, (L, ...) by name.
    """
    drawn = looked_at_sequences(lanes, _N_SEQUENCES)
    names = {name for name, _ in template.named_parameters()}
    parameters = {name: value for name, value in state.items() if name in names}
    buffers = {name: value for name, value in state.items() if name not in names}
    batch = {"token": drawn.token_LBT, "counts": drawn.counts_LBT}
    with torch.no_grad():
        mass_LNHP, uniform_LP = over_lanes(template, _masses)(parameters, buffers, batch)
    scores: dict[str, NDArray[np.float64]] = {
        pattern: mass_LNHP[..., index].cpu().numpy() for index, pattern in enumerate(PATTERNS)
    }
    for index, pattern in enumerate(PATTERNS):
        uniform_L11 = uniform_LP[:, index].view(-1, 1, 1)
        scores[f"{pattern}_uniform"] = uniform_L11.expand(mass_LNHP.shape[:3]).cpu().numpy()
    return HeadScores(scores=scores, role=label_heads(scores))


def label_heads(scores: dict[str, NDArray[np.float64]]) -> NDArray[np.str_]:
    """(L, N, H) the role of each head: the pattern among `previous_token` and `induction` that has most of it.

    In a segment of one token the two would coincide; ours are longer.
    """
    cases = [scores[role] > ROLE_SHARE for role in _ROLES]
    return np.select(cases, _ROLES, NO_ROLE)


def _masses(module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """The share (N, H, P) of attention on each pattern, and that of uniform attention, (P,)."""
    counts_BT, token_BT = batch["counts"], batch["token"]
    sentences = Sentences(
        queries=counts_BT,
        keys=torch.ones_like(counts_BT),
        is_causal=True,
        query_tokens=token_BT,
        key_tokens=token_BT,
    )
    weight_NHBTT = torch.stack(cast(GPT, module).trace(token_BT)[1]).transpose(1, 2)
    mass_NHP, uniform_P, total_NH = pattern_mass(weight_NHBTT, sentences.allowed(), sentences)
    return mass_NHP / total_NH.unsqueeze(-1), uniform_P / counts_BT.sum()
