"""The chains, what counts of their past say, and the scores of heads, each against a slow and plain computation."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

import attnsweep as at
from attnsweep.workloads.field.markov_chains import MARKOV_CHAINS, data, strategies

PROBLEM = MARKOV_CHAINS()


def _draw() -> at.Draw:
    return at.Draw(torch.tensor(5), "train", 0)


def _entropy(counts_SS: Tensor) -> float:
    share = counts_SS / counts_SS.sum(-1, keepdim=True)
    return float(-(share * share.log()).sum(-1).mean())


@pytest.mark.parametrize("chains", ["any", "doubly_stochastic"])
def test_a_chain_is_stationary_and_predicted_best_by_its_bigrams(chains: str) -> None:
    token, _ = data(_draw(), n_context=2000, chains=chains, batch_size=40)  # type: ignore[arg-type]
    state = torch.nn.functional.one_hot(token, 3).double()
    share_BS = state.mean(1)
    spread = share_BS.std(0).mean()
    assert (spread < 0.02) == (chains == "doubly_stochastic")
    early, late = state[:, :1000].mean(1), state[:, 1000:].mean(1)
    assert (early - late).abs().mean() < 0.04
    pairs_BSS = state[:, :-1].mT @ state[:, 1:]
    assert _entropy(pairs_BSS + 1e-9) < _entropy(share_BS + 1e-9) - 0.1


def test_strategies_count_what_came_before() -> None:
    token, _ = data(_draw(), n_context=12, batch_size=6)
    found = strategies(token, 3)
    for b, sequence in enumerate(token.tolist()):
        for t in range(12):
            seen = sequence[: t + 1]
            followed = Counter(after for before, after in pairwise(seen) if before == seen[-1])
            for name, counts in (("unigram", Counter(seen)), ("bigram", followed)):
                expected = np.array([counts[state] + 1.0 for state in range(3)])
                assert found[name][b, t].numpy() == pytest.approx(expected / expected.sum())


def test_ideal_heads_score_1() -> None:
    token, target = data(_draw(), n_context=16, batch_size=4)
    previous, induction = torch.zeros(2, 4, 1, 16, 16)
    for b, sequence in enumerate(token.tolist()):
        for t in range(16):
            previous[b, 0, t, max(t - 1, 0)] = 1.0
            places = [s for s in range(1, t + 1) if sequence[s - 1] == sequence[t]] or [0]
            induction[b, 0, t, places] = 1.0 / len(places)
    weights = torch.stack([previous, induction])
    scores = {
        role: call({"weights": weights, "inputs": token, "target": target}) for role, call in PROBLEM.heads.items()
    }
    assert scores["previous_token"][0].item() == pytest.approx(1.0)
    assert scores["induction"][1].item() == pytest.approx(1.0)
    assert scores["previous_token"][1].item() < 0.6
    assert scores["induction"][0].item() < 0.7
