"""Planted heads get their role and no other, and scores follow their definitions. Axes: B sentence, T token."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep import PATTERN_SCORE_NAMES, Lanes, TrainingParameters, score_patterns
from attnsweep.workloads.diagnostics.roles.counts import count_roles
from attnsweep.workloads.diagnostics.roles.scores import label_roles, role_scores, roles_held
from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.vocabulary import ROLES
from tests.workloads.diagnostics.planted_heads import PLANTED, B, planted_sentences


@pytest.fixture(scope="module")
def sentences() -> Sentences:
    return planted_sentences()


@pytest.fixture(scope="module")
def heads(sentences: Sentences) -> Tensor:
    """(H, B, T, T), in the order of `PLANTED`."""
    return torch.stack([plant(sentences) for plant, _ in PLANTED.values()])


@pytest.fixture(scope="module")
def scores(heads: Tensor, sentences: Sentences) -> dict[str, np.ndarray]:
    return role_scores(count_roles(heads, sentences))


def _of(scores: dict[str, np.ndarray], head: str) -> dict[str, float]:
    index = list(PLANTED).index(head)
    return {name: float(score[index]) for name, score in scores.items()}


def test_each_planted_head_gets_its_label_and_holds_no_other_role(scores: dict[str, np.ndarray]) -> None:
    roles = {name: role for name, (_, role) in PLANTED.items()}
    assert dict(zip(PLANTED, label_roles(scores).tolist(), strict=True)) == roles
    held = roles_held(scores)
    assert set(held) == set(ROLES) - {"none"}
    for index, (name, role) in enumerate(roles.items()):
        assert [each for each in held if held[each][index]] == ([role] if role != "none" else []), name


def test_token_pattern_scores(scores: dict[str, np.ndarray]) -> None:
    for name, head in {
        "previous_token": "previous",
        "duplicate_token": "duplicate token",
        "induction": "induction",
    }.items():
        of_head = {each: _of(scores, each)[name] for each in PLANTED}
        assert max(of_head, key=lambda each: of_head[each]) == head
        assert of_head[head] > 1.5 * _of(scores, head)[f"{name}_uniform"]


def test_the_rare_token_score_is_above_its_null_only_for_rarity(scores: dict[str, np.ndarray]) -> None:
    assert _of(scores, "rarest token")["rare_token"] == 1.0
    assert _of(scores, "rarest token")["rare_token_null"] < 0.8
    liked = _of(scores, "certain tokens")
    assert liked["rare_token"] < liked["rare_token_null"]


def test_where_two_roles_hold_the_one_that_covers_more_of_its_rest_names_the_head() -> None:
    scores = {
        "positional_share": np.array([0.2, 0.2, 0.95, 0.2, 0.2]),
        "syntactic_gain": np.array([0.5, 0.2, 0.5, 0.0, np.nan]),
        "syntactic_baseline": np.array([0.4, 0.4, 0.4, 0.4, np.nan]),
        "rare_token": np.array([0.6, 0.9, 0.9, 0.6, 0.6]),
        "rare_token_null": np.array([0.4, 0.4, 0.4, 0.7, 0.4]),
    }
    assert label_roles(scores).tolist() == ["syntactic", "rare_token", "positional", "none", "rare_token"]


def _shortened(sentences: Sentences, of: slice, length: int) -> Sentences:
    """Some of the sentences, cut to their first tokens."""
    some = sentences.batch(of)
    assert some.arcs is not None
    assert some.query_tokens is not None
    names = ("sentence", "relation", "dependent", "governor")
    inside = (some.arcs.dependent < length) & (some.arcs.governor < length)
    return dataclasses.replace(
        some,
        queries=some.queries[:, :length],
        keys=some.keys[:, :length],
        query_tokens=some.query_tokens[:, :length],
        key_tokens=some.query_tokens[:, :length],
        arcs=dataclasses.replace(some.arcs, **{name: getattr(some.arcs, name)[inside] for name in names}),
    )


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shorter_first", [False, True])
def test_counts_of_batches_of_different_lengths_add_up(
    heads: Tensor, sentences: Sentences, is_causal: bool, shorter_first: bool
) -> None:
    """The counts are the same as if the shorter sentences had been padded to the longer ones."""
    length = 9
    parts = [_shortened(sentences, slice(0, 250), length), sentences.batch(slice(250, B))]
    parts = [dataclasses.replace(part, is_causal=is_causal) for part in parts]
    attention = [heads[:, :250, :length, :length], heads[:, 250:]]
    short, long = (count_roles(*pair) for pair in zip(attention, parts, strict=True))
    found = role_scores(short + long if shorter_first else long + short)
    padded = dataclasses.replace(sentences, is_causal=is_causal)
    assert padded.arcs is not None
    keeps = (padded.arcs.sentence >= 250) | ((padded.arcs.dependent < length) & (padded.arcs.governor < length))
    names = ("sentence", "relation", "dependent", "governor")
    is_word = padded.queries.clone()
    is_word[:250, length:] = False
    padded = dataclasses.replace(
        padded,
        queries=is_word,
        keys=is_word,
        arcs=dataclasses.replace(padded.arcs, **{name: getattr(padded.arcs, name)[keeps] for name in names}),
    )
    whole = heads.clone()
    whole[:, :250, :, length:] = 0.0
    expected = role_scores(count_roles(whole, padded))
    for name, score in expected.items():
        np.testing.assert_allclose(found[name], score, rtol=1e-12, atol=1e-12, err_msg=name)


LANES = Lanes([Training(TrainingParameters(), seed) for seed in range(2)], torch.device("cpu"))
TOKEN_T = torch.tensor([0, 1, 2, 0, 1])
COUNTS_T = torch.tensor([False, False, False, True, True])


def one_hot(keys: list[int]) -> Tensor:
    return nn.functional.one_hot(torch.tensor(keys), 5).double()


MAPS = torch.stack([one_hot([0, 0, 1, 2, 3]), one_hot([0, 1, 0, 1, 2])])
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
    assert found.scores["previous_token"].tolist() == [[[1.0], [0.0]]] * 2
    assert found.scores["induction"].tolist() == [[[0.0], [1.0]]] * 2
    # The two queries that count see four and five tokens, of which one is after a copy.
    assert found.scores["induction_uniform"] == pytest.approx((1 / 4 + 1 / 5) / 2)
