"""The transformer: its block beside PyTorch's, its positions, and problems whose trainings differ in its numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnsweep as at
from attnsweep.workloads.attention.attention import Sight
from attnsweep.workloads.attention.transformer import Norm, RelativeAttention, Transformer, TransformerBlock
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.errors import SpecError
from tests.workloads.attention.test_attention import drawn, tokens

KINDS: list[dict[str, Any]] = [
    {},
    {"n_heads": 2, "attention": "linear", "norm": "post", "positions": "sinusoidal"},
    {"n_heads": 2, "positions": "rope", "norm": "none", "d_ffn": 0, "tied": True},
    {"n_heads": 2, "positions": "relative", "is_causal": True, "n_answers": 3},
    {"positions": "none", "is_causal": False, "qk": "merged", "attention_scale": 0.3},
]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_block_is_pytorchs_layer(norm: Norm) -> None:
    ours = drawn(TransformerBlock(6, at.Attention(6, 3), d_ffn=7, activation="gelu", layer_norm_eps=0.1, norm=norm))
    theirs = nn.TransformerEncoderLayer(6, 3, 7, 0.0, "gelu", 0.1, batch_first=True, norm_first=norm == "pre")
    theirs = theirs.double()
    attention = ours.attention
    projections = (attention.query, attention.key, attention.value)
    state = {
        "self_attn.in_proj_weight": torch.cat([each.weight for each in projections]),
        "self_attn.in_proj_bias": torch.cat([each.bias for each in projections]),
        "self_attn.out_proj.weight": attention.out.weight,
        "self_attn.out_proj.bias": attention.out.bias,
    }
    for name, layer in (("linear1", ours.ffn.first), ("linear2", ours.ffn.second)):
        state |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
    for name, part in (("norm1", ours.attention_norm), ("norm2", ours.ffn_norm)):
        state |= {f"{name}.weight": part.gain_D, f"{name}.bias": part.bias_D}
    theirs.load_state_dict(state)
    x = tokens(2, 4, 6)
    expected = theirs(x, src_mask=nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64))
    torch.testing.assert_close(ours(x, Sight.causal(x))[0], expected, rtol=0, atol=1e-13)


def test_keys_of_distances_are_added_to_those_of_tokens() -> None:
    layer = drawn(RelativeAttention(8, 2, n_tokens=7, attention_scale=1.0))
    x = tokens(3, 5, 8)
    _, weights = layer(x, Sight.causal(x))
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        query, key, distance = layer.query(x)[..., part], layer.keys(x)[:, head], layer.distance.weight[:, part]
        for q in range(5):
            logit = torch.stack([(query[:, q] * (key[:, k] + distance[6 - (q - k)])).sum(-1) for k in range(q + 1)], -1)
            assert torch.allclose(weights[:, head, q, : q + 1], (logit / 2).softmax(-1), atol=1e-9)


def test_queries_and_keys_are_turned_as_complex_numbers() -> None:
    layer = drawn(Transformer(5, 9, d_model=16, n_heads=2, positions="rope")).blocks[0].attention
    x = tokens(2, 7, 16)
    angle = torch.outer(torch.arange(7.0).double(), 10_000 ** (-torch.arange(4.0).double() / 4))
    for ours, linear in ((layer.queries(x, Sight.causal(x)) / layer.scale, layer.query), (layer.keys(x), layer.key)):
        plain = linear(x).unflatten(-1, (2, 2, 4)).permute(0, 2, 1, 4, 3)
        turned = torch.view_as_real(torch.view_as_complex(plain.contiguous()) * torch.exp(1j * angle))
        torch.testing.assert_close(ours, turned.mT.flatten(-2))


@pytest.mark.parametrize("options", KINDS)
def test_the_logits_of_the_last_token_are_those_of_the_whole_forward_pass(options: dict[str, Any]) -> None:
    module = drawn(Transformer(5, 6, d_model=8, **options))
    token_BT = torch.randint(5, (3, 4), generator=torch.Generator().manual_seed(0))
    full = module(token_BT)
    assert full.shape == (3, 4, options.get("n_answers", 5))
    assert torch.allclose(module.last(token_BT), full[:, -1], rtol=1e-12)
    changed = module(torch.cat([token_BT[:, :3], (token_BT[:, 3:] + 1) % 5], 1))
    assert torch.equal(changed[:, :3], full[:, :3]) == options.get("is_causal", True)


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "rope", "n_heads": 8},
        {"positions": "relative", "attention": "linear"},
        {"positions": "rope", "qk": "merged"},
        {"tied": True, "n_answers": 2},
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Transformer(5, 6, d_model=8, **options)


def _model(attention_scale: float = 1.0, layer_norm_eps: float = 1e-5) -> nn.Module:
    scale, eps = attention_scale, layer_norm_eps
    return at.Transformer(5, 6, d_model=8, attention="linear", n_heads=2, attention_scale=scale, layer_norm_eps=eps)


def _data(draw: at.Draw, batch_size: int = 4) -> tuple[Tensor, Tensor]:
    token = draw.integers(5, batch_size, 6)
    return token, token.roll(1, 1)


def test_trainings_of_one_program_differ_in_its_numbers_and_its_heads_are_scored() -> None:
    kind = at.problem("reads", model=_model, data=_data, loss="cross_entropy", heads=("previous_token",))
    values: list[dict[str, Any]] = [{}, {"attention_scale": 3.0}, {"layer_norm_eps": 1.0}]
    trainings = [Training(kind.parameters.resolve(each | {"n_steps": 2}), 7) for each in values]
    result = Pack(kind(), trainings).train_to_end()
    assert len({*result.evidence.metrics["eval_loss"][:, -1].tolist()}) == 3
    assert result.heads[-1].heads.scores["previous_token"].shape == (3, 2, 2)
