"""Compares the formulas of Boue 2025 for layers and their gradients (tables 2 and 3) with our model and autograd, and
measures the errors that the paper's misprints cause.
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import torch
from rich.console import Console
from torch import Tensor
from torch.nn.functional import gelu

from attnsweep.reproduction.boue.backward import gradients_by_hand
from attnsweep.reproduction.boue.counts import BlockCache, next_logits, random_batch, random_model
from attnsweep.reproduction.comparison import ComparedValue, Comparison, value_row
from attnsweep.workloads.attention.attention import Attention, Sight
from attnsweep.workloads.attention.transformer import TransformerBlock
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.model import GPT, GPTShape
from attnsweep.workloads.gpt.workload import GPTWorkload

EXACT = 1e-14
"""Smaller errors count as equal: shares of the whole gradient's norm, or of the largest state."""
_PLAIN = GPTShape(n_words=11, n_tokens=9, d_model=12)


_CASES = (
    (_PLAIN, 0.0),
    (dataclasses.replace(_PLAIN, activation="gelu"), 0.0),
    (dataclasses.replace(_PLAIN, activation="gelu", n_heads=4), 1e-5),
    (dataclasses.replace(_PLAIN, activation="gelu_tanh", n_heads=2, is_causal=False), 1e-5),
    (dataclasses.replace(_PLAIN, activation="gelu", n_heads=2, n_blocks=3, tied=True), 1e-5),
    (dataclasses.replace(_PLAIN, n_heads=3, qk="merged", n_blocks=2), 1e-5),
)
"""The shapes of the compared models, with LayerNorm's epsilon."""
_TABLE_3: Mapping[str, str] = {
    "head.weight": "w_11: a_11^t D",
    "head.bias": "b_11: sum of D",
    "last_norm.gain_D": "gain of the last norm",
    "last_norm.bias_D": "bias of the last norm",
    "ffn.second.weight": "w_8: a_8^t D",
    "ffn.second.bias": "b_8: sum of D",
    "ffn.first.weight": "w_6: a_6^t D",
    "ffn.first.bias": "b_6: sum of D",
    "ffn_norm.gain_D": "gain of norm 2",
    "ffn_norm.bias_D": "bias of norm 2",
    "attention.out.weight": "w_3: a_3^t D",
    "attention.out.bias": "b_3: sum of D",
    "attention.value.weight": "w_v: (R a)^t D",
    "attention.value.bias": "b_v: sum of D",
    "attention.query.weight": "w_q: s a^t D_Z k",
    "attention.query.bias": "b_q: s sum of D_Z k",
    "attention.key.weight": "w_k: s (D_Z a)^t q",
    "attention.key.bias": "b_k: 0",
    "attention_norm.gain_D": "gain of norm 1",
    "attention_norm.bias_D": "bias of norm 1",
    "token.weight": "tok: onehot(t)^t D",
    "position.weight": "pos: onehot(0..n-1)^t D",
    "down.weight": "d, low rank: alpha x^t D u^t",
    "up.weight": "u, low rank: alpha (x d)^t D",
}


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains nothing."""
    del directory
    console.print("gradients by hand and by autograd, of seven small models")
    return Comparison(
        title="boue-gradients: layers and gradients by hand, beside our model's and autograd's",
        source="Boue 2025, Tables 2 and 3",
        rows=[*_table_2(), *_table_3(), *_redundant()],
        tables=[("Where the paper misprints", misprints())],
        notes=[
            f"Errors are the largest over {len(_CASES) + 1} models (1 to 4 heads, 1 to 3 blocks, with or without mask, "
            "tied, low rank, merged, epsilon 0 to 0.1, three activations), in float64 with random parameters, relative "
            f"to the largest state (Table 2) or to the norm of the gradient (Table 3). Below {EXACT:g} a row agrees.",
            "The mask is minus infinity above the diagonal, not a factor 0 as printed, and the gradient below a "
            "low-rank update includes the frozen weight.",
        ],
    )


def gradients_of(model: GPT, batch: Batch) -> tuple[dict[str, Tensor], float]:
    """Autograd's, by parameter name, and the norm of the whole gradient."""
    values = dict(model.named_parameters())
    gradients = torch.autograd.grad(GPTWorkload().loss(model, batch), list(values.values()))
    return dict(zip(values, gradients, strict=True)), math.sqrt(sum(float(value.square().sum()) for value in gradients))


def _cases() -> Iterator[tuple[GPT, Batch]]:
    for shape, eps in _CASES:
        yield random_model(shape, eps), random_batch(shape.n_words)
    low_rank = dataclasses.replace(_PLAIN, n_heads=2, n_blocks=2)
    yield random_model(low_rank, 1e-1, rank=3), random_batch(low_rank.n_words)


def _table_2() -> Iterator[ComparedValue]:
    errors: dict[str, float] = {}
    for model, batch in _cases():
        with torch.no_grad():
            ours, by_hand = states_of(model, batch), states_by_hand(model, batch)
        for name, value in ours.items():
            error = float((value - by_hand[name]).abs().max() / value.abs().max())
            errors[name] = max(error, errors.get(name, 0.0))
    for name, error in errors.items():
        yield _row(f"Table 2, {name}", error)


def _table_3() -> Iterator[ComparedValue]:
    errors: dict[str, float] = {}
    for model, batch in _cases():
        autograd, norm = gradients_of(model, batch)
        with torch.no_grad():
            by_hand = gradients_by_hand(model, batch)
        for name, value in autograd.items():
            row = next(row for row in reversed(tuple(_TABLE_3)) if name == row or name.endswith(f".{row}"))
            error = float((value - by_hand[name]).abs().max()) / norm
            errors[row] = max(error, errors.get(row, 0.0))
    for row, title in _TABLE_3.items():
        yield _row(f"Table 3, {title}", errors[row])


def _redundant() -> Iterator[ComparedValue]:
    model = random_model(_PLAIN, 1e-5)
    gradients, norm = gradients_of(model, random_batch(_PLAIN.n_words))
    out = model.get_parameter("blocks.0.attention.out.weight").detach()
    expected = gradients["blocks.0.attention.out.bias"] @ out
    error = float((gradients["blocks.0.attention.value.bias"] - expected).abs().max()) / norm
    yield value_row("b_v's gradient less w_3 times b_3's", error, "b_v has a valid contribution", agrees=error >= EXACT)


def _row(name: str, error: float) -> ComparedValue:
    return value_row(name, error, "the formula", agrees=error < EXACT)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.clamp(min=0.0),
    "gelu": lambda x: 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
}
States = dict[str, Tensor]
"""What each layer computes, by the layer's name; of several blocks the last one's."""


def states_of(model: GPT, batch: Batch) -> States:
    x = model.embedded(batch["token"])
    sight = model.sight(x)
    states = {"embeddings": x}
    for module in model.blocks:
        block = cast(TransformerBlock, module)
        mixed, weights = block.attention(block.attention_norm(x), sight)
        states |= {"attention weights": weights, "attention and projection": x + mixed}
        x = block(x, sight)[0]
        states["feed-forward part"] = x
    return states | {"logits": model.logits(x), "cross-entropy": GPTWorkload().loss(model, batch)}


def states_by_hand(model: GPT, batch: Batch) -> States:
    """By the formulas of the paper."""
    p = {**dict(model.named_buffers()), **dict(model.named_parameters())}
    token_T, n = batch["token"][0], batch["token"].shape[1]
    x = p["token.weight"][token_T] + p["position.weight"][:n]
    states = {"embeddings": x.unsqueeze(0)}
    for b in range(model.shape.n_blocks):
        prefix = f"blocks.{b}."
        mixed, weights = _attention(model, p, prefix + "attention.", _norm(p, prefix + "attention_norm.", x))
        x = x + mixed
        states |= {"attention weights": weights, "attention and projection": x.unsqueeze(0)}
        hidden = _ACTIVATIONS[model.shape.activation](
            _linear(p, prefix + "ffn.first.", _norm(p, prefix + "ffn_norm.", x))
        )
        x = x + _linear(p, prefix + "ffn.second.", hidden)
        states["feed-forward part"] = x.unsqueeze(0)
    y = _norm(p, "last_norm.", x)
    logits = y @ p["token.weight"].T if model.shape.tied else _linear(p, "head.", y)
    nats = torch.logsumexp(logits, 1) - logits[torch.arange(n), batch["target"][0]]
    loss = (nats * batch["weight"][0]).sum()
    return states | {"logits": logits.unsqueeze(0), "cross-entropy": loss}


def _linear(p: States, prefix: str, x: Tensor) -> Tensor:
    y = x @ p[prefix + "weight"].T + p[prefix + "bias"]
    if prefix + "down.weight" not in p:
        return y
    return y + p[prefix + "scale"] * x @ p[prefix + "down.weight"].T @ p[prefix + "up.weight"].T


def _norm(p: States, prefix: str, x: Tensor) -> Tensor:
    variance = ((x - x.mean(1, keepdim=True)) ** 2).mean(1, keepdim=True)
    return (x - x.mean(1, keepdim=True)) / torch.sqrt(variance + p[prefix + "layer_norm_eps"]) * p[
        prefix + "gain_D"
    ] + p[prefix + "bias_D"]


def _attention(model: GPT, p: States, prefix: str, x: Tensor) -> tuple[Tensor, Tensor]:
    n_heads, n = model.shape.n_heads, x.shape[0]
    query = _linear(p, prefix + "query.", x).chunk(n_heads, 1)
    key = [x] * n_heads if model.shape.qk == "merged" else _linear(p, prefix + "key.", x).chunk(n_heads, 1)
    value = _linear(p, prefix + "value.", x).chunk(n_heads, 1)
    weights = []
    for q, k in zip(query, key, strict=True):
        z = q @ k.T / math.sqrt(model.shape.d_model // n_heads)
        if model.shape.is_causal:
            z = z + torch.triu(torch.full((n, n), -math.inf, dtype=z.dtype), 1)
        weights.append(z.exp() / z.exp().sum(1, keepdim=True))
    mixed = torch.cat([r @ v for r, v in zip(weights, value, strict=True)], 1)
    return _linear(p, prefix + "out.", mixed), torch.stack(weights).unsqueeze(0)


_SHAPE = GPTShape(n_words=11, n_tokens=9, d_model=12, n_heads=2, activation="gelu")


class MaskThatMultiplies(Attention):
    """The causal mask as equation 13 prints it: logits of later tokens times 0, not minus infinity."""

    def attend(self, asking_BQD: Tensor, key_BHKC: Tensor, value_BHKE: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        query_BHQC = self.queries(asking_BQD, sight)
        weight_BHQK = torch.softmax(query_BHQC @ key_BHKC.mT * (sight.bias_BQK.unsqueeze(1) == 0), -1)
        return self.out((weight_BHQK @ value_BHKE).transpose(1, 2).flatten(2)), weight_BHQK


def misprints() -> list[list[str]]:
    future, share = multiplying_mask()
    low, high = (epsilon_added_to_the_deviation(eps) for eps in (1e-5, 0.3))
    return [
        ["place", "printed", "right", "the printed form gives"],
        [
            "(13), (18), Tables 1: causal mask",
            "m * Z, zeros, then softmax",
            "Z + (-inf above)",
            f"{future:.2f} of each row's weight on later tokens; b_k's gradient is {share:.1%} of the whole",
        ],
        [
            "section 7, low rank on logits",
            "D_11 = alpha D_12 (d u)^t",
            "D_12 (w_11 + alpha d u)^t",
            f"relative error {low_rank_without_the_weight():.2f}; at u = 0 nothing below the head would learn",
        ],
        ["(43)", "usually alpha = r", "scale alpha / r (Hu et al. 2021)", "a convention: ours stores the scale"],
        ["(17)", "w_v in R^(d_h)", "R^(d x d_h)", "a shape"],
        ["(14)", "sum over t' of rho(t = t')", "sum over t' of rho_(t* t')", "a reading"],
        [
            "KV cache, softmax of the last row",
            "without 1/sqrt(d_rho); output R^((n+1) x d_h)",
            "with it; R^(d_h)",
            f"logits off by {cache_error(1.0):.2f}; with it by {cache_error(None):.0e}",
        ],
        ["(50)", "row i: a_i.b_1 ... a_i.b_n", "a_i.b_i everywhere in row i", "a slip; the next display is right"],
        ["(53), (54)", "lambda_i = v_i.b", "h_i.b", "a letter"],
        ["section 1", "y_gt(t*) = t* + 1", "t_(*+1)", "the next token, not the next number"],
        ["section 5, step 1", '"LN in eq. (41) of [1]"', "BN", "a reference"],
        ["D_12", "y_pred - y_gt", "times the token's weight m_i", "right for the sum over all tokens only"],
        ["section 3.1", "b_v has a valid contribution", "b_3 does the same", "see the last row above"],
        [
            "(40), epsilon",
            "none anywhere",
            "exact inside the root; else the third term times (s + eps)/s",
            f"relative error {low:.1e} at 1e-5, {high:.2f} at 0.3, if epsilon is added to the deviation",
        ],
    ]


def multiplying_mask() -> tuple[float, float]:
    """The mean share of attention on later tokens, and the share of the key's bias in the gradient's norm."""
    model, batch = random_model(_SHAPE), random_batch(_SHAPE.n_words)
    block = model.blocks[0]
    block.attention.__class__ = MaskThatMultiplies
    weights = model.states(batch["token"])[1][0].detach()
    gradients, norm = gradients_of(model, batch)
    return float(weights.triu(1).sum(-1).mean()), float(gradients["blocks.0.attention.key.bias"].norm()) / norm


def low_rank_without_the_weight() -> float:
    """Relative error of the printed gradient by a layer's input, which leaves out the frozen matrix."""
    draw = torch.Generator().manual_seed(3)
    D, w, d, u = (
        torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((7, 11), (12, 11), (12, 3), (3, 11))
    )
    update = d @ u / math.sqrt(12 * 3)
    right = D @ (w + update).T
    return float((D @ update.T - right).norm() / right.norm())


def epsilon_added_to_the_deviation(eps: float) -> float:
    """Relative error of equation 40 if LayerNorm is (x - mean) / (s + eps)."""
    draw = torch.Generator().manual_seed(4)
    x, D = (torch.randn(7, 12, generator=draw, dtype=torch.float64) for _ in range(2))
    x.requires_grad_()
    s = x.std(-1, keepdim=True, correction=0)
    normal = (x - x.mean(-1, keepdim=True)) / (s + eps)
    (right,) = torch.autograd.grad(normal, x, D)
    with torch.no_grad():
        printed = (D - D.mean(-1, keepdim=True) - normal * (normal * D).mean(-1, keepdim=True)) / (s + eps)
        return float((printed - right).norm() / right.norm())


def cache_error(scale: float | None) -> float:
    """Of the last token's logits with a cache: as printed, without a scale (1), or with our model's own (`None`)."""
    model, token_BT = random_model(_SHAPE), random_batch(_SHAPE.n_words)["token"]
    other = copy.deepcopy(model)
    caches: list[BlockCache] = []
    with torch.no_grad():
        if scale is not None:
            other.blocks[0].get_buffer("attention.scale").fill_(scale)
        for token_B in token_BT.T:
            last_BV = next_logits(other, token_B, caches)
        return float((last_BV - model(token_BT)[:, -1]).abs().max())
