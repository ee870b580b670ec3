"""Modular addition: a transformer memorizes its training pairs long before it can add other pairs."""

from typing import Any

import torch
from torch import Tensor

import attnsweep as at
from attnsweep.workloads.attention.transformer import Norm, Transformer


class Adder(Transformer):
    """Reads the tokens `a b =` and answers at the last one."""

    def forward(self, token_BT: Tensor) -> Tensor:
        return self.last(token_BT)


def model(
    p: int = at.parameter(31, "modulus", low=2),
    d_model: int = at.parameter(32, "width"),
    n_heads: int = at.parameter(4, "attention heads of a layer"),
    n_blocks: int = at.parameter(1, "layers"),
    d_ffn: int = at.parameter(128, "width of the feed-forward part; 0 = none", low=0),
    norm: Norm = at.parameter("none", "LayerNorms before each part of a layer, after it, or none"),
    layer_norm_eps: float = at.parameter(1e-5, "inside the root, with norm=pre", low=0),
    attention_scale: float = at.parameter(1.0, "the logits' factor, in units of 1 / sqrt(d_model / n_heads)"),
) -> Adder:
    """With p=113, d_model=128, d_ffn=512 and norm=none it is the model of Nanda et al."""
    sizes: Any = {"d_model": d_model, "n_heads": n_heads, "n_blocks": n_blocks, "d_ffn": d_ffn, "norm": norm}
    return Adder(p + 1, 3, n_answers=p, layer_norm_eps=layer_norm_eps, attention_scale=attention_scale, **sizes)


def sums(p: int) -> tuple[Tensor, Tensor]:
    """All pairs of numbers below p as tokens `a b =`, (p^2, 3), where `=` is p, and their sums modulo p."""
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    return torch.nn.functional.pad(pairs, (0, 1), value=p), pairs.sum(1) % p


def key_frequencies(
    module: Any, p: int, n_key: int = at.parameter(5, "frequencies that count as key", low=1)
) -> Tensor:
    """The share of the token embedding's Fourier power in its `n_key` strongest frequencies."""
    turns = torch.outer(torch.arange(1, p // 2 + 1), torch.arange(p)) % p
    angle = turns.to(module.token.weight) * (2 * torch.pi / p)
    waves = torch.stack([angle.cos(), angle.sin()])  # (2, n_frequencies, p)
    power = (waves @ module.token.weight[:p]).square().sum((0, 2))
    largest: Tensor = power.topk(min(n_key, len(power))).values.sum() / power.sum()
    return largest


ModularAddition = at.problem(
    "modular_addition",
    model=model,
    data=sums,
    loss="cross_entropy",
    solved="accuracy >= 0.95",
    metrics={"key_frequencies": key_frequencies},
    outcomes={
        "memorized": at.Outcome("knows its pairs and not the others", is_stuck=True, when="train_accuracy >= 0.99")
    },
    events={"memorized": "train_accuracy >= 0.99", "generalized": "accuracy >= 0.95"},
    defaults={"optimizer": "adamw", "learning_rate": 1e-3, "weight_decay": 1.0, "beta_2": 0.98, "n_steps": 5000},
    probe_steps=25,
    summary="a + b modulo p: memorized first, generalized much later, or never",
)
