"""Greedy decoding beside a plain loop, and BLEU beside sacrebleu's."""

import math

import numpy as np
import pytest
import torch
from sacrebleu import corpus_bleu

from attnsweep.workloads.parameters import Value
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS, TEST
from attnsweep.workloads.translation.data import studied_corpus
from attnsweep.workloads.translation.writing import bleu, bleu_scores
from tests.workloads.translation.small_translation import STRUCTURES, WORKLOAD, batch_of, lanes, random_model, small


@pytest.mark.parametrize("structure", ["full", "rarest, log n"])
def test_what_is_written_is_what_a_plain_loop_writes(structure: str) -> None:
    values: dict[str, Value] = {**STRUCTURES[structure], "dtype": "float64"}
    parameters = [small(**values), small(**values, label_smoothing=0.0)]
    models = [random_model(each, seed) for seed, each in enumerate(parameters, start=2)]
    for model in models:
        # So that answers differ by source, and end at different lengths.
        for name, value in model.translator.named_parameters():
            if "gain" in name or "bias" in name:
                value.data.fill_(float("gain" in name))
        model.translator.target_embedding_VD.data *= 0.3
        model.translator.cross.out_weight_DD.data *= 3.0
        model.translator.word_bias_V.data[EOS] = 2.0
    some = lanes(*parameters)
    states = [dict(model.named_parameters()) | dict(model.named_buffers()) for model in models]
    state = {name: torch.stack([each[name].detach() for each in states]) for name in states[0]}
    found = bleu_scores(some, state)
    studied = studied_corpus(parameters[0])
    target = studied.corpus.target
    pairs = studied.held_out(TEST, 12)
    is_short = studied.is_short[pairs]
    assert 0 < is_short.sum() < 12
    rarity = torch.as_tensor(studied.target_rarity)
    for lane, model in enumerate(models):
        said: dict[int, list[int]] = {}
        for pair in pairs.tolist():
            batch, words = batch_of(parameters[0], np.array([pair])), [SOS]
            while len(words) <= target.tokens.shape[1] and EOS not in words:
                read = torch.tensor([words])
                with torch.no_grad():
                    logit = model(batch | {"read": read, "read_rarity": rarity[read]})
                words.append(int(logit[0, -1].argmax()))
            said[pair] = [word for word in words if word not in (SOS, PAD, EOS)]
        assert len({len(words) for words in said.values()}) > 2
        for name, chosen in {"all": pairs, "short": pairs[is_short], "long": pairs[~is_short]}.items():
            references = [target.tokens[pair, : target.lengths[pair] - 1].tolist() for pair in chosen]
            assert found[f"bleu_{name}"][lane] == pytest.approx(bleu([said[pair] for pair in chosen], references))


def test_nothing_is_written_where_nothing_is_asked_for() -> None:
    assert WORKLOAD.final_metrics(lanes(small(test_sentences=0), small(test_sentences=0)), {}) == {}


REFERENCES = ("the cat sat on the mat .", "there is no dog in here .")


@pytest.mark.parametrize(
    "hypotheses", [("the dog", "no cat is here"), ("x", "y"), ("", ""), ("a b c", "no dog in here")]
)
def test_the_score_of_few_matches_is_sacrebleus(hypotheses: tuple[str, ...]) -> None:
    expected = corpus_bleu(list(hypotheses), [list(REFERENCES)], tokenize="none", force=True).score
    numbers = {word: i for i, word in enumerate(" ".join((*hypotheses, *REFERENCES)).split())}
    ours, theirs = ([[numbers[word] for word in line.split()] for line in side] for side in (hypotheses, REFERENCES))
    assert bleu(ours, theirs) == pytest.approx(expected)
    assert math.isnan(bleu([], []))
