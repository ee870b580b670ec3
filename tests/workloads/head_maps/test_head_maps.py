"""Attention maps on one sentence: those that the model itself computes, with the tokens they stand between."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnsweep import UserError
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.category_pairs.attention import attend_by_token, one_hot_texts
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.gpt.parameters import GPTParameters
from attnsweep.workloads.lenses import head_maps
from attnsweep.workloads.translation import Translation
from attnsweep.workloads.translation.corpus import TEST
from attnsweep.workloads.translation.data import by_length, pairs_of, studied_corpus
from attnsweep.workloads.translation.model import TranslationModel
from tests.workloads.translation.small_translation import small


def _started(workload: Workload[Any], training: Training[Any]) -> tuple[Any, State]:
    """The module with its starting parameters, and those."""
    lanes = Lanes([training], torch.device("cpu"))
    module = workload.build(training.parameters).to(lanes.dtype)
    state = {name: value[0] for name, value in workload.initial(module, lanes).items()}
    module.load_state_dict(state, strict=False)
    return module, state


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one.double(), other.double(), atol=1e-6)


@pytest.mark.slow
def test_a_translators_maps_are_those_it_has_among_longer_sentences() -> None:
    training = Training(small(init_sigma=0.5), 3)
    module, state = _started(Translation(), training)
    studied = studied_corpus(training.parameters)
    pairs = studied.held_out(TEST, 40)
    (bucket,) = by_length(studied.corpus, pairs, 1)
    batch = {name: value[0] for name, value in pairs_of(studied, torch.as_tensor(bucket.pairs)[None], bucket).items()}
    assert isinstance(module, TranslationModel)
    with torch.no_grad():
        padded = module.attention(batch)
    for number in (0, 17):
        found = head_maps(Translation(), training, state, number)
        place = int(np.flatnonzero(bucket.pairs == pairs[number])[0])
        n_source, n_target = (
            int(side.lengths[pairs[number]]) for side in (studied.corpus.source, studied.corpus.target)
        )
        sizes = {
            "encoder_self": (n_source, n_source),
            "decoder_self": (n_target, n_target),
            "cross": (n_target, n_source),
        }
        assert (found.number, found.n_sentences) == (number, 500)
        for layer, (name, (n_queries, n_keys)) in zip(found.layers, sizes.items(), strict=True):
            assert (len(layer.queries), len(layer.keys)) == (n_queries, n_keys)
            assert _close(layer.weights_HQK, padded[name][place, :, :n_queries, :n_keys])
        words = [studied.corpus.source.words[each] for each in studied.corpus.source.tokens[pairs[number]][:n_source]]
        assert list(found.layers[0].keys) == words
        assert found.layers[1].keys[0] == "<sos>"
        assert found.text.split(" → ")[0] == " ".join(words[:-1])
    lengths = studied.corpus.source.lengths[studied.held_out(TEST, 500)]
    median = head_maps(Translation(), training, state)
    assert len(median.layers[0].keys) == sorted(lengths)[250]
    assert median.number == lengths.tolist().index(sorted(lengths)[250])


@pytest.mark.parametrize("activation", ["identity", "softmax"])
def test_a_full_models_map_is_what_its_attention_sums_with(activation: str) -> None:
    parameters = CategoryPairsParameters(
        variant="combined", n_categories=3, n_positions=5, batch_size=8, expectation="fixed_sample",
        attention_activation=activation, init_sigma=0.5,
    )  # fmt: skip
    training = Training(parameters, 0)
    module, state = _started(CategoryPairs(), training)
    assert isinstance(module, FullModel)
    (layer,) = head_maps(CategoryPairs(), training, state, 2).layers
    text_BM = CategoryPairs().eval_batch(Lanes([training], torch.device("cpu")))["text"][0]
    whole, nothing = torch.eye(8).to(module.v_VV), torch.zeros(8, 8).to(module.v_VV)
    one_hot = one_hot_texts(text_BM, 3, whole.dtype)
    with torch.no_grad():
        mixed_BMO = attend_by_token(module.logits(), whole, nothing, one_hot, softmax=activation == "softmax")
    assert _close(layer.weights_HQK[0], mixed_BMO[2, 1:, 3:])
    assert layer.keys == tuple(str(each + 1) for each in text_BM[2].tolist())
    assert layer.queries == layer.keys[1:]


def test_an_encoders_map_is_of_cls_over_the_kinds_of_symbols() -> None:
    training = Training(FormalLanguagesParameters(train_length=9), 1)
    _, state = _started(FormalLanguages(), training)
    found = head_maps(FormalLanguages(), training, state, 5)
    for layer in found.layers:
        assert layer.queries == ("CLS",)
        assert layer.weights_HQK.sum(-1).numpy() == pytest.approx(1.0, abs=1e-6)
    counts = [int(key.partition("×")[2] or 1) for key in found.layers[0].keys]
    assert sum(counts) == 10
    assert found.layers[0].keys[0] == "CLS"


def test_a_gpts_maps_are_read_off_while_it_answers() -> None:
    training = Training(GPTParameters(n_blocks=2, n_heads=2, eval_batch_size=4, init_sigma=0.5), 0)
    module, state = _started(GPTWorkload(), training)
    found = head_maps(GPTWorkload(), training, state, 3)
    token_BT = GPTWorkload().eval_batch(Lanes([training], torch.device("cpu")))["token"][0]
    with torch.no_grad():
        traced = module.trace(token_BT)[1]
    assert [layer.number for layer in found.layers] == [0, 1]
    for layer, weights_BHTT in zip(found.layers, traced, strict=True):
        assert _close(layer.weights_HQK, weights_BHTT[3])
        assert layer.keys == tuple(map(str, token_BT[3].tolist()))


def test_a_training_in_bfloat16_is_looked_at_in_float32() -> None:
    training = Training(GPTParameters(dtype="bfloat16", init_sigma=0.5, eval_batch_size=2), 0)
    (layer,) = head_maps(GPTWorkload(), training, _started(GPTWorkload(), training)[1]).layers
    assert layer.weights_HQK.sum(-1).numpy() == pytest.approx(1.0, abs=1e-6)


def test_what_has_no_heads_or_no_such_sentence_is_a_mistake() -> None:
    reduced = Training(CategoryPairsParameters(), 0)
    with pytest.raises(
        UserError, match="got 'a training of category_pairs', expected a training of a model with attention heads"
    ):
        head_maps(CategoryPairs(), reduced, {})
    gpt = Training(GPTParameters(eval_batch_size=4), 0)
    with pytest.raises(UserError, match=r"--sentence: got 4, expected 0\.\.3"):
        head_maps(GPTWorkload(), gpt, {}, 4)
