"""Attention maps on one sentence: those that the model itself computes, with the tokens they stand between."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.category_pairs.attention import attend_by_token, one_hot_texts
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.gpt.parameters import GPTParameters
from attnsweep.workloads.head_maps import attention_weights
from attnsweep.workloads.lenses import head_maps
from attnsweep.workloads.translation import Translation
from attnsweep.workloads.translation.corpus import TEST
from attnsweep.workloads.translation.data import by_length, pairs_of, studied_corpus
from attnsweep.workloads.translation.model import TranslationModel
from tests.refusals import refused
from tests.workloads.engine.any_module import AnyParameters, lanes_of
from tests.workloads.models.module_kinds import KINDS, KindWorkload
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


def test_a_gpts_maps_are_read_off_while_it_answers() -> None:
    training = Training(GPTParameters(n_blocks=2, n_heads=2, eval_batch_size=4, init_sigma=0.5), 0)
    module, state = _started(GPTWorkload(), training)
    found = head_maps(GPTWorkload(), training, state, 3)
    token_BT = GPTWorkload().eval_batch(Lanes([training], torch.device("cpu")))["token"][0]
    with torch.no_grad():
        traced = module.states(token_BT)[1]
    assert [layer.number for layer in found.layers] == [0, 1]
    for layer, weights_BHTT in zip(found.layers, traced, strict=True):
        assert _close(layer.weights_HQK, weights_BHTT[3])
        assert layer.keys == tuple(map(str, token_BT[3].tolist()))


TOKENS, WIDTH = 4, 8
X = torch.linspace(-1, 1, 3 * TOKENS * WIDTH).view(3, TOKENS, WIDTH)


class Gated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(-1)


def test_other_softmaxes_are_no_attention() -> None:
    with refused("the attention of Gated", SpecError):
        attention_weights(Gated(), X)


def test_maps_of_a_borrowed_model_need_no_declaration() -> None:
    workload = KindWorkload(KINDS["nanoGPT"])
    trainings = lanes_of(*[AnyParameters(n_steps=2, init_sigma=1.0, dtype="float32")] * 2).trainings
    pack = Pack(workload, trainings)
    pack.train_to_end()
    _, state = pack.final_state(torch.arange(2).numpy())
    maps = head_maps(workload, trainings[1], {name: value[1] for name, value in state.items()})
    assert len(maps.layers) == 2
    for layer in maps.layers:
        assert layer.weights_HQK.shape == (2, TOKENS, TOKENS)
        torch.testing.assert_close(layer.weights_HQK.sum(-1).float(), torch.ones(2, TOKENS))
        assert not layer.weights_HQK.triu(1).any()
