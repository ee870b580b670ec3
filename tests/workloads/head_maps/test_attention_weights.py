"""Attention weights are found in modules of any origin by their softmaxes, and roles follow from them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnsweep as at
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.head_maps import attention_weights
from attnsweep.workloads.lenses import head_maps
from tests.workloads.engine.any_module import AnyParameters, lanes_of
from tests.workloads.models.module_kinds import KINDS, TOKENS, WIDTH, WORDS, KindWorkload

TOKEN = torch.arange(3 * TOKENS).view(3, TOKENS) % WORDS
X = torch.linspace(-1, 1, 3 * TOKENS * WIDTH).view(3, TOKENS, WIDTH)
CAUSAL = {"GPT2LMHeadModel", "LlamaForCausalLM", "TransformerBridge", "nanoGPT", "scaled_dot_product_attention"}
OF_TOKENS = CAUSAL - {"scaled_dot_product_attention"}
FOUND = {
    name: kind
    for name, kind in KINDS.items()
    if name in CAUSAL or name in ("nn.MultiheadAttention", "nn.TransformerEncoder", "nn.TransformerDecoderLayer")
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if kind.needs else []) for name, kind in FOUND.items()]
)
def test_weights_sum_to_one_over_keys(name: str) -> None:
    kind = KINDS[name]
    if kind.needs:
        pytest.importorskip(kind.needs, reason=f"{kind.needs} is in an extra of pyproject.toml")
    module = kind.build()
    given = {"nn.MultiheadAttention": (X, X, X), "nn.TransformerDecoderLayer": (X, X)}.get(name, (X,))
    with torch.no_grad():
        found = attention_weights(module.eval(), *((TOKEN,) if name in OF_TOKENS else given))
    n_layers = 1 if name in ("nn.MultiheadAttention", "scaled_dot_product_attention") else 2
    assert found.shape == (n_layers, 3, 2, TOKENS, TOKENS)
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))
    assert (name in CAUSAL) == (not found.triu(1).any())


@pytest.mark.parametrize("average", [True, False])
def test_a_watched_layer_answers_as_it_does(average: bool) -> None:
    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    kept: list[Any] = []

    class Asking(nn.Module):
        def forward(self, x: Tensor) -> None:
            kept.append(layer(x, x, x, average_attn_weights=average))

    weights = attention_weights(Asking(), X)
    for one, other in zip(kept[0], layer(X, X, X, average_attn_weights=average), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(weights[0] if not average else weights[0].mean(1), kept[0][1])


class OneHead(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.softmax(x @ x.mT, -1) @ x


class Gated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(-1)


def test_one_head_needs_no_axis_and_other_softmaxes_are_no_attention() -> None:
    assert attention_weights(OneHead(), X).shape == (1, 3, 1, TOKENS, TOKENS)
    with pytest.raises(
        SpecError,
        match=r"^the attention of Gated: got 'a module that computes no softmax of the shape \(sequence, head",
    ):
        attention_weights(Gated(), X)


class Borrowed(KindWorkload):
    """With roles of its heads."""

    head_score_names = at.PATTERN_SCORE_NAMES

    def batch(self, lanes: Lanes[AnyParameters], step: int, use: str = "train") -> Batch:
        token = super().batch(lanes, step, use)["token"]
        everywhere = torch.ones_like(token, dtype=torch.bool)
        return {"token": token, "counts": everywhere, "needs_previous": everywhere}

    def score_heads(self, lanes: Lanes[AnyParameters], state: State) -> HeadScores:
        module, batch = self.build(lanes.shared), self.eval_batch(lanes)
        return at.score_patterns(module, at.attention_weights, lanes, state, batch)


def test_maps_and_roles_of_a_borrowed_model_need_no_declaration() -> None:
    workload = Borrowed(KINDS["nanoGPT"])
    trainings = lanes_of(*[AnyParameters(n_steps=2, init_sigma=1.0, dtype="float32")] * 2).trainings
    pack = Pack(workload, trainings)
    result = pack.train_to_end()
    assert set(result.heads[-1].heads.scores) == set(at.PATTERN_SCORE_NAMES)
    _, state = pack.final_state(torch.arange(2).numpy())
    maps = head_maps(workload, trainings[1], {name: value[1] for name, value in state.items()})
    assert len(maps.layers) == 2
    for layer in maps.layers:
        assert layer.weights_HQK.shape == (2, TOKENS, TOKENS)
        torch.testing.assert_close(layer.weights_HQK.sum(-1).float(), torch.ones(2, TOKENS))
        assert not layer.weights_HQK.triu(1).any()
