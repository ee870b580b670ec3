"""The sentences on which heads are scored have the grammar's arcs and alignment, and a model's scores follow from its
attention."""

import numpy as np
import pytest
import torch

from attnsweep.workloads.diagnostics.roles.counts import count_roles
from attnsweep.workloads.diagnostics.roles.scores import label_roles, role_scores
from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.diagnostics.structure import SCORES as STRUCTURE_SCORES
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation.corpus import PAD, VALID
from attnsweep.workloads.translation.data import studied_corpus
from attnsweep.workloads.translation.grammar import RELATIONS
from attnsweep.workloads.translation.head_scores import (
    ALIGNMENT_SCORES,
    SCORE_NAMES,
    Alignment,
    HeadSentences,
    count_aligned,
    head_sentences,
)
from attnsweep.workloads.translation.translator import LAYERS
from tests.workloads.translation.small_translation import SMALL, WORKLOAD, lanes, random_model, small

CPU = torch.device("cpu")
WIDE: dict[str, Value] = {**SMALL, "n_names": 40, "n_nouns": 24, "n_sentences": 400, "head_sentences": 400}


@pytest.fixture(scope="module")
def parts() -> tuple[HeadSentences, ...]:
    return head_sentences(defaults(WORKLOAD, **WIDE), CPU)


def test_arcs_and_alignment_join_the_words_that_the_grammar_joins(parts: tuple[HeadSentences, ...]) -> None:
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
    # Structure is that of self-attention, alignment that of cross-attention.
    for name in STRUCTURE_SCORES:
        assert np.isnan(found.scores[name]).all((0, 2)).tolist() == [False, False, True]
    for name in ALIGNMENT_SCORES:
        assert np.isnan(found.scores[name]).all((0, 2)).tolist() == [True, True, False]
    for lane, model in enumerate(models):
        for index, layer in enumerate(LAYERS):
            counts = [
                count_roles(model.attention(part.batch)[layer].transpose(0, 1).detach(), part.sentences[layer])
                for part in head_sentences(parameters[lane], CPU)
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
