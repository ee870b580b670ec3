"""Converts a trained GPT to Hugging Face's GPT-2, with the same logits.

GPT-2 is pre-norm with epsilon inside the root, like our model. Its positions are a table, its linear layers store
weights as (in, out), its attention logits are divided by sqrt(d_model / n_heads), and its last layer has no bias.
Source: `GPT2LMHeadModel` of transformers 5. Axes: B sequence, T token, D model, V word.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.attention import Attention
from attnsweep.workloads.attention.layers import LayerNorm, Linear
from attnsweep.workloads.attention.transformer import TransformerBlock
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.parameters import GPTParameters

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}
_TOLERANCE = 1e-4
"""The largest accepted difference of logits, relative to the largest one."""


def as_gpt2(parameters: GPTParameters, module: GPT) -> nn.Module:
    """A `GPT2LMHeadModel` in eval mode; refuses a GPT without a counterpart.

    With attention_scale=one the queries are multiplied by sqrt(d_model / n_heads): some readers know no other scale.
    The bias b of an untied last layer, of weight W, moves to the LayerNorm before it, as a vector d with W d = b.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    _check(parameters)
    shape = parameters.shape
    config = GPT2Config(
        vocab_size=shape.n_words,
        n_positions=shape.n_tokens,
        n_embd=shape.d_model,
        n_layer=shape.n_blocks,
        n_head=shape.n_heads,
        n_inner=shape.d_ffn,
        activation_function=_ACTIVATIONS[shape.activation],
        layer_norm_epsilon=parameters.layer_norm_eps,
        tie_word_embeddings=shape.tied,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    # The constructor draws weights, which are replaced below.
    with torch.random.fork_rng(devices=[]):
        model: nn.Module = GPT2LMHeadModel(config).to(module.token.weight.dtype).eval()
    with torch.no_grad():
        model.load_state_dict(_weights(module, parameters))
        _check_logits(module, model, parameters)
    return model


def _check(parameters: GPTParameters) -> None:
    d_head = parameters.d_model // parameters.n_heads
    if parameters.attention_scale == "log_n_inv_sqrt_d":
        expected = "attention_scale=inv_sqrt_d or attention_scale=one: GPT-2's scale has no factor log n"
        raise _not_in_gpt2("attention_scale", parameters.attention_scale, expected)
    if parameters.qk != "factored":
        raise _not_in_gpt2(
            "qk", parameters.qk, "qk=factored, because GPT-2 keeps the matrices of queries and keys apart"
        )
    if parameters.qk_rank not in (None, d_head):
        expected = f"the rank {d_head}, because GPT-2's queries are d_model / n_heads wide"
        raise _not_in_gpt2("qk_rank", parameters.qk_rank, expected)


def _not_in_gpt2(name: str, given: object, expected: str) -> UserError:
    return UserError(name, given=given, expected=expected, fix="export only the weights with --to pt")


def _weights(module: GPT, parameters: GPTParameters) -> State:
    weights = {"transformer.wte.weight": module.token.weight, "transformer.wpe.weight": _positions(module)}
    query_factor = math.sqrt(parameters.d_model // parameters.n_heads) if parameters.attention_scale == "one" else 1.0
    for number, block in enumerate(module.blocks):
        block_weights = _block(cast(TransformerBlock, block), query_factor)
        weights |= {f"transformer.h.{number}.{name}": value for name, value in block_weights.items()}
    weights |= _norm("transformer.ln_f", module.last_norm)
    head_VD, bias_V = (module.token.weight, None) if module.head is None else _linear(module.head)
    weights["lm_head.weight"] = head_VD
    if bias_V is not None:
        weights["transformer.ln_f.bias"] = weights["transformer.ln_f.bias"] + _bias_before(head_VD, bias_V)
    return weights


def _positions(module: GPT) -> Tensor:
    """(T, D); zeros for a model without positions."""
    if module.shape.positions == "none":
        return module.token.weight.new_zeros(module.shape.n_tokens, module.shape.d_model)
    return module.position_TD if module.position is None else module.position.weight


def _block(block: TransformerBlock, query_factor: float) -> State:
    attention: Attention = block.attention
    query, key, value = (_linear(cast(nn.Module, part)) for part in (attention.query, attention.key, attention.value))
    joined = [torch.cat([query_factor * q, k, v]) for q, k, v in zip(query, key, value, strict=True)]
    layers = {
        "attn.c_attn": joined,
        "attn.c_proj": _linear(attention.out),
        "mlp.c_fc": _linear(block.ffn.first),
        "mlp.c_proj": _linear(block.ffn.second),
    }
    weights = _norm("ln_1", block.attention_norm) | _norm("ln_2", block.ffn_norm)
    for name, (weight, bias) in layers.items():
        weights |= {f"{name}.weight": weight.T.contiguous(), f"{name}.bias": bias}
    return weights


def _norm(name: str, norm: LayerNorm) -> State:
    return {f"{name}.weight": norm.gain_D, f"{name}.bias": norm.bias_D}


def _linear(layer: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, Linear)
    return layer.weight, layer.bias


def _bias_before(head_VD: Tensor, bias_V: Tensor) -> Tensor:
    """The shortest d with W d nearest to b."""
    inverse_DV: Tensor = torch.linalg.pinv(head_VD.double())
    return (inverse_DV @ bias_V.double()).to(bias_V.dtype)


def _check_logits(module: GPT, model: Any, parameters: GPTParameters) -> None:
    token_BT = torch.randint(parameters.n_words, (8, parameters.n_tokens), generator=torch.Generator().manual_seed(0))
    ours_BTV, theirs_BTV = module(token_BT), model(token_BT).logits
    difference = (ours_BTV - theirs_BTV).abs().max()
    # `not <=` refuses NaN too.
    if not difference <= _TOLERANCE * ours_BTV.abs().max():
        if module.head is None or difference.isnan():
            raise _not_in_gpt2("difference of logits", difference.item(), "equal logits")
        expected = "tied=true, because GPT-2's last layer has no bias and no other bias of this model can replace it"
        raise _not_in_gpt2("tied", parameters.tied, expected)
