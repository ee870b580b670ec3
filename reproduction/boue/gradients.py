"""Tables 2 and 3 of Boue 2025: the layers and their gradients by hand, in float64, beside our model and autograd."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from attnsweep.reproduction.boue.drawn import random_batch, random_model
from attnsweep.reproduction.boue.forward import states_by_hand, states_of
from attnsweep.reproduction.boue.misprints import misprints
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.backward import gradients_by_hand
from attnsweep.workloads.gpt.model import GPT, GPTShape
from attnsweep.workloads.gpt.workload import GPTWorkload

EXACT = 1e-14
"""What counts as equal: an error as a share of the whole gradient's norm."""
_PLAIN = GPTShape(n_words=11, n_context=9, d_model=12)


@dataclass(frozen=True, slots=True)
class _Case:
    shape: GPTShape
    layer_norm_eps: float


_CASES = (
    _Case(_PLAIN, 0.0),
    _Case(dataclasses.replace(_PLAIN, activation="gelu"), 0.0),
    _Case(dataclasses.replace(_PLAIN, activation="gelu", n_heads=4), 1e-5),
    _Case(dataclasses.replace(_PLAIN, activation="gelu_tanh", n_heads=2, is_causal=False), 1e-5),
    _Case(dataclasses.replace(_PLAIN, activation="gelu", n_heads=2, n_blocks=3, is_tied=True), 1e-5),
    _Case(dataclasses.replace(_PLAIN, n_heads=2, n_blocks=2, lora_rank=3), 1e-1),
    _Case(dataclasses.replace(_PLAIN, n_heads=3, qk="merged", n_blocks=2), 1e-5),
)
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
    "position": "pos: onehot(0..n-1)^t D",
    "down.weight": "d, low rank: alpha x^t D u^t",
    "up.weight": "u, low rank: alpha (x d)^t D",
}


def reproduce(directory: Path, console: Console) -> Comparison:
    """Computes each row by hand and by our model; nothing is trained."""
    del directory
    console.print("gradients by hand and by autograd, of seven small models")
    return Comparison(
        title="boue-gradients: layers and gradients by hand, beside our model's and autograd's",
        source="Boue 2025, Tables 2 and 3",
        rows=[*_table_2(), *_table_3(), *_redundant()],
        tables=[("Where the paper misprints", misprints())],
        notes=[
            f"Errors are the largest over {len(_CASES)} models (1 to 4 heads, 1 to 3 blocks, with and without mask, "
            "tied, low rank, merged, epsilon 0 to 0.1, three activations), in float64 with random parameters, relative "
            f"to the largest state (Table 2) or to the norm of the gradient (Table 3). Below {EXACT:g} a row agrees.",
            "The mask is minus infinity above the diagonal, not a factor 0 as printed, and the gradient below a "
            "low-rank update includes the frozen weight.",
        ],
    )


def gradients_of(model: GPT, batch: Batch) -> tuple[dict[str, Tensor], float]:
    """Autograd's, by name, and the norm of them all."""
    values = dict(model.named_parameters())
    found = torch.autograd.grad(GPTWorkload().loss(model, batch), list(values.values()))
    return dict(zip(values, found, strict=True)), math.sqrt(sum(float(value.square().sum()) for value in found))


def _table_2() -> Iterator[ComparedValue]:
    errors: dict[str, float] = {}
    for case in _CASES:
        model, batch = random_model(case.shape, case.layer_norm_eps), random_batch(case.shape.n_words)
        with torch.no_grad():
            ours, by_hand = states_of(model, batch), states_by_hand(model, batch)
        for name, value in ours.items():
            error = float((value - by_hand[name]).abs().max() / value.abs().max())
            errors[name] = max(error, errors.get(name, 0.0))
    for name, error in errors.items():
        yield _row(f"Table 2, {name}", error)


def _table_3() -> Iterator[ComparedValue]:
    errors: dict[str, float] = {}
    for case in _CASES:
        model, batch = random_model(case.shape, case.layer_norm_eps), random_batch(case.shape.n_words)
        theirs, norm = gradients_of(model, batch)
        with torch.no_grad():
            by_hand = gradients_by_hand(model, batch)
        for name, value in theirs.items():
            row = next(row for row in reversed(tuple(_TABLE_3)) if name == row or name.endswith(f".{row}"))
            error = float((value - by_hand[name]).abs().max()) / norm
            errors[row] = max(error, errors.get(row, 0.0))
    for row, title in _TABLE_3.items():
        yield _row(f"Table 3, {title}", errors[row])


def _redundant() -> Iterator[ComparedValue]:
    """b_v: the paper says that it contributes, but b_3 does the same."""
    model = random_model(_PLAIN, 1e-5)
    found, norm = gradients_of(model, random_batch(_PLAIN.n_words))
    out = model.get_parameter("blocks.0.attention.out.weight").detach()
    follows = found["blocks.0.attention.out.bias"] @ out
    error = float((found["blocks.0.attention.value.bias"] - follows).abs().max()) / norm
    yield ComparedValue(
        name="b_v's gradient less w_3 times b_3's",
        published="b_v has a valid contribution",
        ours=error,
        agrees=error >= EXACT,
    )


def _row(name: str, error: float) -> ComparedValue:
    return ComparedValue(name=name, published="the formula", ours=error, agrees=error < EXACT)
