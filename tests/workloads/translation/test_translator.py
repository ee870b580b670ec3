"""The translator compared with PyTorch's own modules, and what its answers depend on. Axes: B sentence, T token."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from attnsweep.workloads.engine.construction import starting_state
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.engine_forms import with_masks
from attnsweep.workloads.engine.functional import forms_in, over_lanes
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS, UNK
from attnsweep.workloads.translation.data import studied_corpus
from attnsweep.workloads.translation.translator import LAYERS
from tests.workloads.translation.small_translation import STRUCTURES, WORKLOAD, batch_of, lanes, random_model, small
from tests.workloads.translation.torch_translator import TorchTranslator

STRUCTURED = pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
BATCH = np.arange(7)


def _with_words(batch: Batch, name: str, words: Tensor) -> Batch:
    """The batch with other words, `source` or `read`, and their rarities."""
    studied = studied_corpus(small())
    rarity = {"source": studied.source_rarity, "read": studied.target_rarity}[name]
    return batch | {name: words, f"{name}_rarity": torch.as_tensor(rarity)[words]}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"n_heads": 1, "layer_norm_eps": 0.3},
        {"n_heads": 4, "layer_norm_convention": "outside_root", "layer_norm_eps": 0.3},
        {"d_model": 10, "n_heads": 2, "d_ffn": 3},
    ],
)
def test_it_is_the_pre_norm_transformer_of_torch(values: dict[str, Value]) -> None:
    parameters = small(**values)
    model = random_model(parameters)
    batch = batch_of(parameters, BATCH)
    assert (batch["source"] == PAD).any()
    assert (batch["read"] == PAD).any()
    reference = TorchTranslator(model.translator)
    logit_BTV = model(batch)
    expected_BTV, expected_attention = reference(batch["source"], batch["read"])
    is_word_BT, is_source_BS = batch["read"] != PAD, batch["source"] != PAD
    torch.testing.assert_close(logit_BTV[is_word_BT], expected_BTV[is_word_BT], rtol=1e-9, atol=1e-9)
    attention = model.attention(batch)
    assert tuple(attention) == LAYERS
    for layer, weight in attention.items():
        queries = is_source_BS if layer == "encoder_self" else is_word_BT
        ours, theirs = (each.transpose(1, 2)[queries] for each in (weight, expected_attention[layer]))
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    for logit in (logit_BTV, expected_BTV):
        cross_entropy(logit.flatten(0, 1), batch["target"].flatten(), ignore_index=PAD).backward()
    for name, value in model.translator.named_parameters():
        assert value.grad is not None
        theirs = reference.gradient(name)
        assert theirs.abs().max() > 0, name
        torch.testing.assert_close(value.grad, theirs, rtol=1e-8, atol=1e-10, msg=f"{name}: {{}}".format)


@pytest.mark.parametrize("qk_rank", [None, 3, 9])
def test_the_merged_form_is_the_product_of_the_factors(qk_rank: int | None) -> None:
    parameters = small(qk_rank=qk_rank)
    factored = random_model(parameters)
    merged = random_model(small(qk="merged"))
    H, D = parameters.n_heads, parameters.d_model
    C = qk_rank or D // H
    state, found = factored.state_dict(), merged.state_dict()
    for layer in (f"translator.{name}" for name in LAYERS):
        query, key = state[f"{layer}.query_weight_DD"], state[f"{layer}.key_value_weight_DE"][:, : H * C]
        by_head = [(query[:, at : at + C], key[:, at : at + C], at) for at in range(0, H * C, C)]
        # The scale is 1 / sqrt(C) with factors, and 1 / sqrt(D / H) with their product.
        ratio = (D / H / C) ** 0.5
        products = [one @ other.T for one, other, _ in by_head]
        biases = [state[f"{layer}.query_bias_D"][at : at + C] @ other.T for _, other, at in by_head]
        state[f"{layer}.query_weight_DD"] = ratio * torch.cat(products, 1)
        state[f"{layer}.query_bias_D"] = ratio * torch.cat(biases)
        for name in ("key_value_weight_DE", "key_value_bias_E"):
            state[f"{layer}.{name}"] = state[f"{layer}.{name}"][..., H * C :]
    state["translator.scale"] = found["translator.scale"]
    merged.load_state_dict(state)
    batch = batch_of(parameters, BATCH)
    is_word_BT = batch["read"] != PAD
    expected, given = (model(batch)[is_word_BT] for model in (factored, merged))
    torch.testing.assert_close(given, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@STRUCTURED
def test_the_decoder_does_not_see_the_future(structure: dict[str, Value]) -> None:
    model = random_model(small(**structure))
    batch = batch_of(small(), BATCH)
    logit_BTV = model(batch)
    T = batch["read"].shape[1]
    changes = 0
    for first in range(1, T):
        for word in (PAD, UNK, EOS, SOS, 4, int(batch["read"].max())):
            words = batch["read"].clone()
            words[:, first:] = word
            changed = model(_with_words(batch, "read", words))
            assert torch.equal(changed[:, :first], logit_BTV[:, :first])
            changes += int((changed[:, first] != logit_BTV[:, first]).any())
    assert changes > T


@STRUCTURED
def test_padding_changes_nothing(structure: dict[str, Value]) -> None:
    parameters = small(**structure)
    model = random_model(parameters)
    together = batch_of(parameters, BATCH)
    together_logit_BTV, together_attention = model(together), model.attention(together)
    for b in range(len(BATCH)):
        S, T = (int((together[name][b] != PAD).sum()) for name in ("source", "read"))
        alone = {
            name: value[b : b + 1, : S if name.startswith("source") else T].clone() for name, value in together.items()
        }
        logit_1TV = model(alone)
        torch.testing.assert_close(logit_1TV[0], together_logit_BTV[b, :T], rtol=1e-11, atol=1e-11)
        weight = model.attention(alone)["cross"][0]
        torch.testing.assert_close(weight, together_attention["cross"][b, :, :T, :S], rtol=1e-11, atol=1e-11)
        if max(S, T) + 2 <= model.translator.shape.longest:
            longer = alone
            for name in ("source", "read"):
                longer = _with_words(longer, name, pad(alone[name], (0, 2), value=PAD))
            torch.testing.assert_close(model(longer)[0, :T], logit_1TV[0], rtol=1e-11, atol=1e-11)


def test_dropout_is_of_embeddings_and_sublayers_by_seed_and_step() -> None:
    parameters = small(dropout=0.3)
    of = lanes(parameters, parameters)
    weights, buffers, template = starting_state(WORKLOAD, of)
    batch = WORKLOAD.batch(of, 3)
    alone = [{name: value[0] for name, value in tensors.items()} for tensors in (weights | buffers, batch)]
    sites = forms_in(template, WORKLOAD.loss, *alone).masks.sites
    n_source, n_read = (batch[name][0].numel() for name in ("source", "read"))
    assert [site.shape for site in sites] == [(n, parameters.d_model) for n in [n_source] * 3 + [n_read] * 4]
    loss = over_lanes(template, WORKLOAD.loss)
    masked = [loss(weights, buffers, with_masks(of, sites, step, batch)) for step in (3, 4)]
    assert len({float(each) for each in (*masked[0], *masked[1])}) == 4
    assert not torch.equal(loss(weights, buffers, batch), masked[0])
