"""In-context Markov chains: each sequence is of a chain of its own, whose transition matrix only the sequence tells.

Each row of a transition matrix is drawn from Dirichlet(1, ..., 1). With `doubly_stochastic` only the first is, and each
other row is the one above it, shifted by a state: columns sum to 1 too, so all states are as frequent, and their counts
say nothing. For two states these are all doubly stochastic matrices, uniformly. A chain starts from its stationary
distribution, and the loss is that of all tokens but the first, each predicted from those before it.

Axes of one training: B sequence, T token, S state, N block, H head.

Source: Edelman, Edelman, Goel, Malach & Tsilivis 2024, "The Evolution of Statistical Induction Heads".
"""

import math
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from attnsweep.workloads.engine.contract import Condition, Evidence
from attnsweep.workloads.field.transformer import Positions, Transformer
from attnsweep.workloads.problem.declared import problem
from attnsweep.workloads.problem.draw import Draw

_SQUARINGS = 8
"""A chain is stationary after 2^8 transitions."""


def model(
    n_states: int = 3,
    n_context: int = 32,
    d_model: int = 16,
    n_blocks: int = 2,
    n_heads: int = 1,
    d_ffn: int = 0,
    positions: Positions = "relative",
    norm: Literal["pre", "none"] = "pre",
    layer_norm_eps: float = 1e-5,
    attention_scale: float = 1.0,
) -> nn.Module:
    """Blocks of causal attention, without feed-forward parts by default."""
    return Transformer(
        n_states,
        n_context,
        d_model=d_model,
        n_blocks=n_blocks,
        n_heads=n_heads,
        d_ffn=d_ffn,
        attention_scale=attention_scale,
        layer_norm_eps=layer_norm_eps if norm == "pre" else None,
        positions=positions,
    )


def data(
    draw: Draw,
    n_states: int = 3,
    n_context: int = 32,
    chains: Literal["any", "doubly_stochastic"] = "any",
    batch_size: int = 16,
) -> tuple[Tensor, Tensor]:
    """Sequences (B, T), and the token after each token."""
    weight_BSS = -torch.log1p(-draw.uniform(batch_size, n_states, n_states))
    if chains == "doubly_stochastic":
        state_S = torch.arange(n_states, device=weight_BSS.device)
        weight_BSS = weight_BSS[:, 0, (state_S - state_S.unsqueeze(1)) % n_states]
    transition_BSS = weight_BSS / weight_BSS.sum(2, keepdim=True)
    stationary_BSS = transition_BSS
    for _ in range(_SQUARINGS):
        stationary_BSS = stationary_BSS @ stationary_BSS
    first_B1 = _chosen(stationary_BSS[:, :1], draw.uniform(batch_size, 1))
    next_BTS = _chosen(transition_BSS.unsqueeze(1), draw.uniform(batch_size, n_context, 1))
    token_BT = torch.cat([first_B1, _followed(first_B1, next_BTS)], dim=1)
    return token_BT[:, :-1], token_BT[:, 1:]


def _chosen(probability: Tensor, uniform: Tensor) -> Tensor:
    """(...) int64 states with these probabilities (..., S), by uniform numbers that have all axes but the last."""
    return (uniform.unsqueeze(-1) >= probability.cumsum(-1)[..., :-1]).sum(-1)


def _followed(first_B1: Tensor, next_BTS: Tensor) -> Tensor:
    """(B, T) the states after a first one, from the state (B, T, S) that would follow each state at each step.

    Steps are composed in pairs, then in fours and so on: log T operations in place of T.
    """
    span, n_steps = 1, next_BTS.shape[1]
    while span < n_steps:
        composed_BTS = next_BTS[:, span:].gather(2, next_BTS[:, :-span])
        next_BTS = torch.cat([next_BTS[:, :span], composed_BTS], dim=1)
        span *= 2
    return next_BTS.gather(2, first_B1.unsqueeze(1).expand(-1, n_steps, 1)).squeeze(2)


def strategies(token_BT: Tensor, n_states: int) -> dict[str, Tensor]:
    """The probabilities (B, T, S) of the next token by strategies that know the prior, and part of the sequence.

    `unigram` counts the states so far, `bigram` what followed the current state so far, each with one count more of
    every state: the posterior mean under Dirichlet(1, ..., 1). For chains of any kind `bigram` is optimal, but for what
    the first token says of the stationary distribution.
    """
    seen_BTS = one_hot(token_BT, n_states)
    pair_BTSS = (seen_BTS[:, :-1].unsqueeze(-1) * seen_BTS[:, 1:].unsqueeze(-2)).cumsum(1)
    pair_BTSS = torch.cat([torch.zeros_like(pair_BTSS[:, :1]), pair_BTSS], dim=1)
    counts = {"unigram": seen_BTS.cumsum(1), "bigram": (pair_BTSS * seen_BTS.unsqueeze(-1)).sum(2)}
    return {name: (count + 1.0) / (count + 1.0).sum(-1, keepdim=True) for name, count in counts.items()}


def loss(output: Tensor, target: Tensor) -> Tensor:
    """The mean cross-entropy, in nats."""
    return cross_entropy(output.flatten(0, 1), target.flatten())


def _level(strategy: str, inputs: Tensor, target: Tensor, n_states: int) -> Tensor:
    return -strategies(inputs, n_states)[strategy].gather(-1, target.unsqueeze(-1)).log().mean()


def _distance(strategy: str, output: Tensor, inputs: Tensor, n_states: int) -> Tensor:
    """The mean divergence KL(strategy || model) over tokens, in nats."""
    uniform = torch.full_like(output, 1.0 / n_states)
    probability = strategies(inputs, n_states).get(strategy, uniform)
    return (probability * (probability.log() - output.log_softmax(-1))).sum(-1).mean()


def _bigram_share(output: Tensor, inputs: Tensor, target: Tensor, n_states: int) -> Tensor:
    """The part of what bigrams say beyond unigrams, or beyond nothing, that the model knows: 1 where it knows all."""
    known = _level("unigram", inputs, target, n_states).clamp(max=math.log(n_states))
    return (known - loss(output, target)) / (known - _level("bigram", inputs, target, n_states))


def _previous_token(weights: Tensor) -> Tensor:
    """(N, H) the share of attention on the token before the query."""
    return weights.diagonal(-1, -2, -1).mean((1, 3))


def _induction(weights: Tensor, inputs: Tensor) -> Tensor:
    """(N, H) the share of attention on tokens that follow earlier copies of the query, where there are some."""
    follows_BTT = (inputs.unsqueeze(2) == inputs.roll(1, 1).unsqueeze(1)).tril()
    follows_BTT = follows_BTT & (torch.arange(inputs.shape[1], device=inputs.device) > 0)
    share_NBHT = (weights * follows_BTT.unsqueeze(1)).sum(-1)
    return share_NBHT.sum((1, 3)) / follows_BTT.any(-1).sum()


def _nearest(strategy: str) -> Condition:
    """Where the model is nearer to a strategy than to the others."""

    def holds(_: object, evidence: Evidence) -> NDArray[np.bool_]:
        others = [evidence.metrics[f"from_{name}"] for name in STAGES if name != strategy]
        return np.asarray(evidence.metrics[f"from_{strategy}"] < np.minimum.reduce(others))

    return holds


STAGES = ("uniform", "unigram", "bigram")

MARKOV_CHAINS = problem(
    "markov_chains",
    model=model,
    data=data,
    loss=loss,
    solved="bigram_share >= 0.75",
    metrics={"bigram_share": _bigram_share, **{f"from_{name}": partial(_distance, name) for name in STAGES}},
    levels={name: partial(_level, name) for name in STAGES[1:]},
    heads={"previous_token": _previous_token, "induction": _induction},
    events={name: _nearest(name) for name in STAGES[1:]},
    defaults={
        "dtype": "float32",
        "optimizer": "adamw",
        "learning_rate": 5e-3,
        "weight_decay": 0.1,
        "beta_2": 0.95,
        "gradient_clip_norm": 1.0,
        "init_sigma": 0.02,
        "n_steps": 500,
    },
    eval_batch_size=64,
    probe_every=10,
    summary="attention learns to predict Markov chains in context: uniform, then by unigrams, then by bigrams",
)
