"""Planted heads on the grammar's sentences get their roles, and a model's scores follow from its attention.

Axes: L lane, H head, B sentence, Q query, K key.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.counts import count_roles
from attnsweep.workloads.diagnostics.roles.scores import label_roles, role_scores, roles_held
from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.diagnostics.structure import SCORES as STRUCTURE_SCORES
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation.corpus import PAD, VALID
from attnsweep.workloads.translation.data import studied_corpus
from attnsweep.workloads.translation.grammar import RELATIONS
from attnsweep.workloads.translation.head_scores import (
    SCORE_NAMES,
    Alignment,
    LookedAt,
    _Measures,
    count_aligned,
    looked_at,
)
from attnsweep.workloads.translation.translator import LAYERS
from tests.workloads.translation.small_translation import SMALL, WORKLOAD, lanes, random_model, small

Plant = Callable[[LookedAt, str], Tensor]
CPU = torch.device("cpu")
WIDE: dict[str, Value] = {**SMALL, "n_names": 40, "n_nouns": 24, "n_sentences": 400, "head_sentences": 400}


@pytest.fixture(scope="module")
def parts() -> tuple[LookedAt, ...]:
    return looked_at(defaults(WORKLOAD, **WIDE), CPU)


def _visible(part: LookedAt, layer: str) -> Tensor:
    """(B, Q, K) which keys a head of the layer may see."""
    source, read = part.batch["source"] != PAD, part.batch["read"] != PAD
    queries, keys = {"encoder_self": (source, source), "decoder_self": (read, read), "cross": (read, source)}[layer]
    seen_BQK = queries.unsqueeze(2) & keys.unsqueeze(1)
    if layer == "decoder_self":
        seen_BQK = seen_BQK.tril()
    return seen_BQK


def _towards(place_BQ: Tensor, visible_BQK: Tensor) -> Tensor:
    """Attention mostly on the named key if it is seen, else uniform over the seen keys."""
    K = visible_BQK.shape[2]
    uniform = visible_BQK.double() / visible_BQK.sum(-1, keepdim=True).clamp_min(1)
    one = torch.nn.functional.one_hot(place_BQ.clamp(0, K - 1), K).bool() & visible_BQK
    one &= ((place_BQ >= 0) & (place_BQ < K)).unsqueeze(-1)
    return torch.where(one.any(-1, keepdim=True), 0.8 * one.double() + 0.2 * uniform, uniform)


def _shift(k: int) -> Plant:
    def plant(part: LookedAt, layer: str) -> Tensor:
        visible = _visible(part, layer)
        return _towards((torch.arange(visible.shape[1]) + k).expand(visible.shape[:2]), visible)

    return plant


def _uniform(part: LookedAt, layer: str) -> Tensor:
    visible = _visible(part, layer)
    return _towards(torch.full(visible.shape[:2], -1), visible)


def _rarest(part: LookedAt, layer: str) -> Tensor:
    visible = _visible(part, layer)
    sentences = part.sentences[layer]
    assert sentences.rarity is not None
    assert sentences.key_tokens is not None
    place_B = sentences.rarity[sentences.key_tokens].masked_fill(~sentences.keys, -1).argmax(1)
    return _towards(place_B.unsqueeze(1).expand(visible.shape[:2]), visible)


def _arc(relation: str, *, to_governor: bool) -> Plant:
    def plant(part: LookedAt, layer: str) -> Tensor:
        visible = _visible(part, layer)
        arcs = part.sentences[layer].arcs
        assert arcs is not None
        place_BQ = torch.full(visible.shape[:2], -1)
        among = arcs.relation == RELATIONS.index(relation)
        look, find = (arcs.dependent, arcs.governor) if to_governor else (arcs.governor, arcs.dependent)
        place_BQ[arcs.sentence[among], look[among]] = find[among]
        return _towards(place_BQ, visible)

    return plant


def _aligned(part: LookedAt, layer: str) -> Tensor:
    assert part.alignment is not None
    return _towards(part.alignment.place_BQ, _visible(part, layer))


PLANTED: dict[str, dict[str, tuple[Plant, str]]] = {
    "encoder_self": {
        "previous": (_shift(-1), "positional"),
        "next": (_shift(1), "positional"),
        "itself": (_shift(0), "positional"),
        "subject": (_arc("subject", to_governor=True), "syntactic"),
        "object": (_arc("object", to_governor=False), "syntactic"),
        "rarest": (_rarest, "rare_token"),
        "uniform": (_uniform, "none"),
    },
    "decoder_self": {
        "previous": (_shift(-1), "positional"),
        "two back": (_shift(-2), "positional"),
        "subject": (_arc("subject", to_governor=False), "syntactic"),
        "uniform": (_uniform, "none"),
    },
    "cross": {
        "at the same place": (_shift(0), "positional"),
        "aligned": (_aligned, "none"),
        "rarest": (_rarest, "rare_token"),
        "uniform": (_uniform, "none"),
    },
}
Scores = dict[str, dict[str, dict[str, float]]]


@pytest.fixture(scope="module")
def measured(parts: tuple[LookedAt, ...]) -> dict[str, dict[str, np.ndarray]]:
    """(1, H) scores by layer and name."""
    found = {}
    for layer, planted in PLANTED.items():
        measures = _Measures(layer, 30)
        for part in parts:
            measures.add(torch.stack([plant(part, layer) for plant, _ in planted.values()]).unsqueeze(0), part)
        found[layer] = measures.scores()
    return found


@pytest.fixture(scope="module")
def scores(measured: dict[str, dict[str, np.ndarray]]) -> Scores:
    return {
        layer: {
            head: {name: float(value[0, index]) for name, value in measured[layer].items()}
            for index, head in enumerate(planted)
        }
        for layer, planted in PLANTED.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS)
def test_planted_heads_get_their_roles_and_no_other(layer: str, measured: dict[str, dict[str, np.ndarray]]) -> None:
    assert tuple(measured[layer]) == SCORE_NAMES
    wanted = {name: role for name, (_, role) in PLANTED[layer].items()}
    assert dict(zip(wanted, label_roles(measured[layer])[0].tolist(), strict=True)) == wanted
    held = roles_held(measured[layer])
    for index, (name, role) in enumerate(wanted.items()):
        assert [each for each in held if held[each][0, index]] == ([role] if role != "none" else []), name


def test_alignment_is_followed_by_cross_attention_alone(scores: Scores) -> None:
    assert scores["cross"]["aligned"]["alignment"] == 1.0
    assert scores["cross"]["uniform"]["alignment"] == 0.0
    baseline = scores["cross"]["aligned"]["alignment_baseline"]
    assert 0.1 < baseline < 0.9
    assert scores["cross"]["aligned"]["positional_share"] < 0.9
    for layer in ("encoder_self", "decoder_self"):
        assert np.isnan(scores[layer]["previous"]["alignment"])
        assert np.isnan(scores[layer]["previous"]["alignment_baseline"])


def test_structure_is_of_self_attention_alone(scores: Scores) -> None:
    itself = scores["encoder_self"]["itself"]
    uniform = scores["encoder_self"]["uniform"]
    assert itself["sigma_1"] < 0.5 * uniform["sigma_1"]
    assert scores["encoder_self"]["previous"]["sigma_2_w1"] < 0.5 * uniform["sigma_2_w1"]
    assert scores["encoder_self"]["rarest"]["sigma_3"] < uniform["sigma_3"]
    assert np.isnan([scores["cross"]["uniform"][name] for name in STRUCTURE_SCORES]).all()


def test_arcs_and_alignment_join_the_words_that_the_grammar_joins(parts: tuple[LookedAt, ...]) -> None:
    studied = studied_corpus(defaults(WORKLOAD, **WIDE))
    gold = studied.corpus.gold
    assert gold is not None
    pairs = studied.held_out(VALID, 400)
    found: dict[str, list[tuple[object, ...]]] = {"encoder_self": [], "decoder_self": [], "alignment": []}
    for part in parts:
        source, read, target = (part.batch[name] for name in ("source", "read", "target"))
        sentence = [
            (tuple(s[s != PAD].tolist()), tuple(t[t != PAD].tolist())) for s, t in zip(source, target, strict=True)
        ]
        for layer, tokens in (("encoder_self", source), ("decoder_self", read)):
            arcs = part.sentences[layer].arcs
            assert arcs is not None
            assert arcs.relations == RELATIONS
            columns = (arcs.sentence.tolist(), arcs.relation.tolist(), arcs.dependent.tolist(), arcs.governor.tolist())
            found[layer] += [
                (sentence[b], r, int(tokens[b, d]), int(tokens[b, g])) for b, r, d, g in zip(*columns, strict=True)
            ]
        assert part.alignment is not None
        for b, places in enumerate(part.alignment.place_BQ.tolist()):
            found["alignment"] += [
                (sentence[b], int(source[b, place]), int(target[b, t])) for t, place in enumerate(places) if place >= 0
            ]
    sides = studied.corpus.source.tokens, studied.corpus.target.tokens
    text = {n: tuple(tuple(side[n][side[n] != PAD].tolist()) for side in sides) for n in pairs}
    for layer, arcs_A4, words in (
        ("encoder_self", gold.source_arcs, sides[0]),
        ("decoder_self", gold.target_arcs, sides[1]),
    ):
        expected = [(text[n], r, int(words[n, d]), int(words[n, g])) for n, r, d, g in arcs_A4.tolist() if n in text]
        assert sorted(found[layer]) == sorted(expected)
    aligned = [
        (text[n], int(sides[0][n, place]), int(sides[1][n, t]))
        for n in pairs
        for t, place in enumerate(gold.alignment[n])
        if place >= 0
    ]
    assert sorted(found["alignment"]) == sorted(aligned)


@pytest.mark.slow
@pytest.mark.parametrize("values", [{}, {"window": 1, "num_pos": 1, "attention_scale": "log_n_inv_sqrt_d"}])
def test_scores_of_a_model_are_those_of_its_attention(values: dict[str, Value]) -> None:
    parameters = [small(dtype="float64", **values), small(dtype="float64")]
    models = [random_model(each, seed) for seed, each in enumerate(parameters)]
    states = [dict(model.named_parameters()) | dict(model.named_buffers()) for model in models]
    state = {name: torch.stack([each[name].detach() for each in states]) for name in states[0]}
    found = WORKLOAD.score_heads(lanes(*parameters), state)
    assert found is not None
    assert tuple(found.scores) == SCORE_NAMES
    assert {score.shape for score in found.scores.values()} == {found.role.shape} == {(2, 3, 2)}
    np.testing.assert_array_equal(found.role, label_roles(found.scores))
    for lane, model in enumerate(models):
        for index, layer in enumerate(LAYERS):
            counts = [
                count_roles(model.attention(part.batch)[layer].transpose(0, 1).detach(), part.sentences[layer])
                for part in looked_at(parameters[lane], CPU)
            ]
            pooled = counts[0]
            for more in counts[1:]:
                pooled = pooled + more
            for name, score in role_scores(pooled).items():
                np.testing.assert_allclose(found.scores[name][lane, index], score, rtol=1e-9, err_msg=name)


def test_alignment_counts_by_hand() -> None:
    """Two sentences, the second ends early; key 2 of the first is its EOS."""
    sentences = Sentences(
        queries=torch.tensor([[True, True, True], [True, True, False]]),
        keys=torch.tensor([[True, True, False], [True, False, False]]),
    )
    strongest = torch.tensor([[[1, 1, -1], [0, 0, 0]], [[1, 0, -1], [0, 0, -1]]])
    counts = count_aligned(strongest, sentences, Alignment(torch.tensor([[1, 0, 2], [0, -1, 0]]), offset=1))
    assert counts.tolist() == [[3, 3], [1, 1], [2, 3]]
