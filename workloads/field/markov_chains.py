"""In-context Markov chains: each sequence comes from a random Markov chain of its own, whose transition probabilities
the model must infer.

Each row of a transition matrix is drawn from Dirichlet(1, ..., 1). With `doubly_stochastic` each row is the one above
it, shifted by one state, so all states are equally frequent. A chain starts from its stationary distribution.

Axes of one training: B sequence, T token, S state.
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

from attnsweep.workloads.attention.transformer import Norm, Positions, Transformer
from attnsweep.workloads.declaration import parameter
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.verdicts import Condition
from attnsweep.workloads.problem.data import Draw
from attnsweep.workloads.problem.declared import problem

_SQUARINGS = 8
"""How often the transition matrix is squared to find the stationary distribution, which 2^8 transitions reach."""


def model(
    n_states: int = parameter(3, "states of a chain"),
    n_context: int = parameter(32, "states that the model reads"),
    d_model: int = parameter(16, "width"),
    n_blocks: int = parameter(2, "layers"),
    n_heads: int = parameter(1, "attention heads of a layer"),
    d_ffn: int = parameter(0, "width of the feed-forward parts; 0 for none"),
    positions: Positions = parameter("relative", "how the model sees positions"),
    norm: Norm = parameter("pre", "LayerNorms before each part of a layer, after it, or none"),
    layer_norm_eps: float = parameter(1e-5, "epsilon of the LayerNorms, inside the root"),
    attention_scale: float = parameter(1.0, "factor of the logits, in units of 1/sqrt(channels)"),
) -> nn.Module:
    return Transformer(
        n_states,
        n_context,
        d_model=d_model,
        n_blocks=n_blocks,
        n_heads=n_heads,
        d_ffn=d_ffn,
        attention_scale=attention_scale,
        norm=norm,
        layer_norm_eps=layer_norm_eps,
        positions=positions,
    )


def data(
    draw: Draw,
    n_states: int = 3,
    n_context: int = 32,
    chains: Literal["any", "doubly_stochastic"] = parameter("any", "chains; doubly_stochastic: equal frequencies"),
    batch_size: int = parameter(16, "sequences per step"),
) -> tuple[Tensor, Tensor]:
    """Tokens, (B, T), and the tokens that follow."""
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
    """A state from each distribution, (..., S), by uniform numbers in [0, 1)."""
    return (uniform.unsqueeze(-1) >= probability.cumsum(-1)[..., :-1]).sum(-1)


def _followed(first_B1: Tensor, next_BTS: Tensor) -> Tensor:
    """States after the first: from state s at step t it goes to `next_BTS[:, t, s]`. Tables are composed in pairs."""
    span, n_steps = 1, next_BTS.shape[1]
    while span < n_steps:
        composed_BTS = next_BTS[:, span:].gather(2, next_BTS[:, :-span])
        next_BTS = torch.cat([next_BTS[:, :span], composed_BTS], dim=1)
        span *= 2
    return next_BTS.gather(2, first_B1.unsqueeze(1).expand(-1, n_steps, 1)).squeeze(2)


def strategies(token_BT: Tensor, n_states: int) -> dict[str, Tensor]:
    """The probabilities of the next token, (B, T, S): `unigram` from the states so far, `bigram` from those that
    followed earlier occurrences of the current state.

    Each adds 1 to every count: the posterior mean under the prior Dirichlet(1, ..., 1). For `chains=any`, `bigram` is
    optimal, except that it ignores what the first token reveals of the stationary distribution.
    """
    seen_BTS = one_hot(token_BT, n_states)
    pair_BTSS = (seen_BTS[:, :-1].unsqueeze(-1) * seen_BTS[:, 1:].unsqueeze(-2)).cumsum(1)
    pair_BTSS = torch.cat([torch.zeros_like(pair_BTSS[:, :1]), pair_BTSS], dim=1)
    counts = {"unigram": seen_BTS.cumsum(1), "bigram": (pair_BTSS * seen_BTS.unsqueeze(-1)).sum(2)}
    return {name: (count + 1.0) / (count + 1.0).sum(-1, keepdim=True) for name, count in counts.items()}


def loss(output: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(output.flatten(0, 1), target.flatten())


def _level(strategy: str, inputs: Tensor, target: Tensor, n_states: int) -> Tensor:
    return -strategies(inputs, n_states)[strategy].gather(-1, target.unsqueeze(-1)).log().mean()


def _distance(strategy: str, output: Tensor, inputs: Tensor, n_states: int) -> Tensor:
    """The mean Kullback-Leibler divergence of the model's probabilities from the strategy's."""
    uniform = torch.full_like(output, 1.0 / n_states)
    probability = strategies(inputs, n_states).get(strategy, uniform)
    return (probability * (probability.log() - output.log_softmax(-1))).sum(-1).mean()


def _bigram_share(output: Tensor, inputs: Tensor, target: Tensor, n_states: int) -> Tensor:
    """0 at the loss of `uniform` or `unigram`, whichever is lower; 1 at that of `bigram`."""
    start = _level("unigram", inputs, target, n_states).clamp(max=math.log(n_states))
    return (start - loss(output, target)) / (start - _level("bigram", inputs, target, n_states))


def _nearest(strategy: str) -> Condition:
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
    heads=("previous_token", "induction"),
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
    probe_steps=10,
    summary="attention learns to predict Markov chains in context: uniform, then by unigrams, then by bigrams",
)
