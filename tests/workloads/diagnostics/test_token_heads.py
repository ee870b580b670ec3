"""Scores of patterns from attention maps: planted maps get their scores and roles. Axes: L lane, T token."""

import pytest
import torch
from torch import Tensor, nn

from attnsweep import PATTERN_SCORE_NAMES, Lanes, TrainingParameters, score_patterns
from attnsweep.workloads.engine.contract import Training

LANES = Lanes([Training(TrainingParameters(), seed) for seed in range(2)], torch.device("cpu"))
TOKEN_T = torch.tensor([0, 1, 2, 0, 1])
COUNTS_T = torch.tensor([False, False, False, True, True])


def one_hot(keys: list[int]) -> Tensor:
    return nn.functional.one_hot(torch.tensor(keys), 5).double()


MAPS = torch.stack([one_hot([0, 0, 1, 2, 3]), one_hot([0, 0, 0, 1, 2])])
"""Of two blocks: one looks at the previous token, the other at the token after the current one's earlier copy."""


def attention(module: nn.Module, token_BT: Tensor) -> Tensor:
    return MAPS.view(2, 1, 1, 5, 5) * next(module.parameters()).sum()


def test_planted_heads_get_their_scores_and_roles() -> None:
    per_lane = {"token": TOKEN_T, "counts": COUNTS_T, "needs_previous": ~COUNTS_T}
    batch = {name: value.expand(2, 1, 5) for name, value in per_lane.items()}
    state = {"weight": torch.ones(2, 1, 1, dtype=torch.float64)}
    found = score_patterns(nn.Linear(1, 1, bias=False), attention, LANES, state, batch)
    assert set(found.scores) == set(PATTERN_SCORE_NAMES)
    assert found.role.tolist() == [[["previous_token"], ["induction"]]] * 2
    # The first token has no token before it, and does not count.
    assert found.scores["previous_token"].tolist() == [[[1.0], [0.5]]] * 2
    assert found.scores["induction"].tolist() == [[[0.0], [1.0]]] * 2
    # The two queries that count see four and five tokens, of which one is after a copy.
    assert found.scores["induction_uniform"] == pytest.approx((1 / 4 + 1 / 5) / 2)
