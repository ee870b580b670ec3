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
from attnsweep.workloads.gpt.tasks import TASKS
from attnsweep.workloads.vocabulary import NO_ROLE

SCORE_NAMES = (*PATTERNS, *(f"{pattern}_uniform" for pattern in PATTERNS))
ROLE_SHARE = 0.5
"""A head has the role of a pattern if more than this share of its attention falls on it. Ours."""

_N_SEQUENCES = 32
_ROLES = ("previous_token", "induction")


def score_heads(template: GPT, lanes: GPTLanes, state: State) -> HeadScores:
    """Scores (L, N, H) and roles on sequences that no step sees.

    `induction` and `duplicate_token` are scored at the queries whose predictions count, so a head that always looks at
    the token to copy reaches 1. `previous_token` is scored where the task needs it: in `induction` in the first round
    of a segment, because an induction head reads there what a previous-token head wrote.

    Args:
        template: A model of the pack's shape.
        lanes: The L trainings.
        state: Their parameters and buffers, (L, ...) by name.
    """
    drawn = looked_at_sequences(lanes, _N_SEQUENCES)
    names = {name for name, _ in template.named_parameters()}
    parameters = {name: value for name, value in state.items() if name in names}
    buffers = {name: value for name, value in state.items() if name not in names}
    batch = {
        "token": drawn.token_LBT,
        "counts": drawn.counts_LBT,
        "needs_previous": TASKS[lanes.shared.task].needs_previous(drawn),
    }
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
    token_BT = batch["token"]
    weight_NHBTT = torch.stack(cast(GPT, module).trace(token_BT)[1]).transpose(1, 2)
    found = [
        _mass(weight_NHBTT, batch["needs_previous" if pattern == "previous_token" else "counts"], token_BT, index)
        for index, pattern in enumerate(PATTERNS)
    ]
    of_heads, uniform = zip(*found, strict=True)
    return torch.stack(of_heads, -1), torch.stack(uniform)


def _mass(weight_NHBTT: Tensor, query_BT: Tensor, token_BT: Tensor, index: int) -> tuple[Tensor, Tensor]:
    """The share (N, H) of attention on one pattern, and that of uniform attention."""
    sentences = Sentences(
        queries=query_BT, keys=torch.ones_like(query_BT), is_causal=True, query_tokens=token_BT, key_tokens=token_BT
    )
    # Queries that do not count would add to the sum of all attention.
    counted_NHBTT = weight_NHBTT * query_BT.unsqueeze(-1)
    mass_NHP, uniform_P, total_NH = pattern_mass(counted_NHBTT, sentences.allowed(), sentences)
    return mass_NHP[..., index] / total_NH, uniform_P[index] / query_BT.sum()
