"""A trained GPT as Hugging Face's GPT-2, with the same logits. Axes: as in `model`.

GPT-2 is pre-norm with epsilon inside the root as here; its positions are a table, its linear layers store (in, out),
its logits are divided by sqrt(D / H), and its last layer has no bias. Source: `GPT2LMHeadModel` of transformers 5.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.attention import Attention
from attnsweep.workloads.attention.block import TransformerBlock
from attnsweep.workloads.attention.layers import LayerNorm, Linear, LowRankLinear
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.parameters import GPTParameters

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}
_TOLERANCE = 1e-4
"""Of the logits, relative to the largest: both models round, in another order."""


def as_gpt2(parameters: GPTParameters, module: GPT) -> nn.Module:
    """A `GPT2LMHeadModel` in eval mode.

    Updates of low rank are added to the weights that they update, and where logits are not divided by sqrt(D / H), the
    queries are larger by it: there are readers of GPT-2 that know no other scale. An untied last layer's bias b goes
    into the bias of the normalization before it, as the d with W d = b.

    Raises:
        UserError: For a parameter without a counterpart, or a last bias that is not in the span of its weights.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    _check(parameters)
    shape = parameters.shape
    config = GPT2Config(
        vocab_size=shape.n_words,
        n_positions=shape.n_context,
        n_embd=shape.d_model,
        n_layer=shape.n_blocks,
        n_head=shape.n_heads,
        n_inner=shape.d_ffn,
        activation_function=_ACTIVATIONS[shape.activation],
        layer_norm_epsilon=parameters.layer_norm_eps,
        tie_word_embeddings=shape.is_tied,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    # It draws weights, which are replaced.
    with torch.random.fork_rng(devices=[]):
        model: nn.Module = GPT2LMHeadModel(config).to(module.token.weight.dtype).eval()
    with torch.no_grad():
        model.load_state_dict(_weights(module, parameters))
        _check_logits(module, model, parameters)
    return model


def _check(parameters: GPTParameters) -> None:
    """Refuses parameters without a counterpart."""
    d_head = parameters.d_model // parameters.n_heads
    if parameters.attention_scale == "log_n_inv_sqrt_d":
        raise _without("attention_scale", parameters.attention_scale, "inv_sqrt_d or one: GPT-2's scale has no log n")
    if parameters.qk != "factored":
        raise _without("qk", parameters.qk, "factored: GPT-2 has no product of the queries' and keys' matrices")
    if parameters.qk_rank not in (None, d_head):
        raise _without("qk_rank", parameters.qk_rank, f"{d_head}: GPT-2's queries are d_model / n_heads wide")


def _without(name: str, given: object, expected: str) -> UserError:
    return UserError(name, given=given, expected=expected, fix="export the weights: --to safetensors")


def _weights(module: GPT, parameters: GPTParameters) -> State:
    weights = {"transformer.wte.weight": module.token.weight, "transformer.wpe.weight": _positions(module)}
    larger = math.sqrt(parameters.d_model // parameters.n_heads) if parameters.attention_scale == "one" else 1.0
    for number, block in enumerate(module.blocks):
        of_block = _block(cast(TransformerBlock, block), larger)
        weights |= {f"transformer.h.{number}.{name}": value for name, value in of_block.items()}
    weights |= _norm("transformer.ln_f", module.last_norm)
    head_VD, bias_V = (module.token.weight, None) if module.head is None else _linear(module.head)
    weights["lm_head.weight"] = head_VD
    if bias_V is not None:
        weights["transformer.ln_f.bias"] = weights["transformer.ln_f.bias"] + _before(head_VD, bias_V)
    return weights


def _positions(module: GPT) -> Tensor:
    """(C, D)."""
    if module.shape.positions == "none":
        return module.token.weight.new_zeros(module.shape.n_context, module.shape.d_model)
    return module.position_CD if module.position is None else module.position


def _block(block: TransformerBlock, larger: float) -> State:
    attention: Attention = block.attention
    query, key, value = (_linear(cast(nn.Module, part)) for part in (attention.query, attention.key, attention.value))
    joined = [torch.cat([larger * q, k, v]) for q, k, v in zip(query, key, value, strict=True)]
    layers = {
        "attn.c_attn": joined,
        "attn.c_proj": _linear(attention.out),
        "mlp.c_fc": _linear(block.ffn.first),
        "mlp.c_proj": _linear(block.ffn.second),
    }
    found = _norm("ln_1", block.attention_norm) | _norm("ln_2", block.ffn_norm)
    for name, (weight, bias) in layers.items():
        found |= {f"{name}.weight": weight.T.contiguous(), f"{name}.bias": bias}
    return found


def _norm(name: str, norm: LayerNorm) -> State:
    return {f"{name}.weight": norm.gain_D, f"{name}.bias": norm.bias_D}


def _linear(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """The weight (out, in), with its update where there is one, and the bias."""
    assert isinstance(layer, Linear)
    if isinstance(layer, LowRankLinear):
        return layer.weight + layer.scale * (layer.up.weight @ layer.down.weight), layer.bias
    return layer.weight, layer.bias


def _before(head_VD: Tensor, bias_V: Tensor) -> Tensor:
    """(D,) the least d with W d = b."""
    inverse_DV: Tensor = torch.linalg.pinv(head_VD.double())
    return (inverse_DV @ bias_V.double()).to(bias_V.dtype)


def _check_logits(module: GPT, model: Any, parameters: GPTParameters) -> None:
    words = torch.Generator().manual_seed(0)
    token_BT = torch.randint(parameters.n_words, (8, parameters.n_tokens), generator=words)
    ours_BTV, theirs_BTV = module(token_BT), model(token_BT).logits
    # Not `>`: logits may be NaN.
    if not (ours_BTV - theirs_BTV).abs().max() <= _TOLERANCE * ours_BTV.abs().max():
        raise _without(
            "tied", parameters.tied, "true: GPT-2's last layer has no bias, and no other can stand for it here"
        )
