"""Two workloads written as a user would write them: two layers that predict the next token, and a block that adds.

Axes: B sequence, T token, D channel, V word.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attnsweep import (
    Batch,
    Embedding,
    Evidence,
    Lanes,
    Linear,
    Sight,
    TrainingParameters,
    TransformerBlock,
    Verdicts,
    Workload,
    judge_by_levels,
)

B, T, D, V = 4, 8, 16, 8
P, CHANNELS, HEADS = 17, 24, 4


class Attention(nn.Module):
    """x + W softmax(q k' / sqrt(D)) v, causal, with one head."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inputs, self.output = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.register_buffer("mask", torch.full((T, T), -1e9).triu(1))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D)."""
        q, k, v = self.inputs(self.norm(x_BTD)).chunk(3, dim=-1)
        weights_BTT = torch.softmax(q @ k.mT / D**0.5 + self.mask, dim=-1)
        out: Tensor = x_BTD + self.output(weights_BTT @ v)
        return out


class Transformer(nn.Module):
    """Embeddings, two layers, and the logits of the next token."""

    words_BTV: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.word_VD, self.position_TD = nn.Parameter(torch.zeros(V, D)), nn.Parameter(torch.zeros(T, D))
        self.layers = nn.Sequential(Attention(), Attention())
        self.head = nn.Linear(D, V)
        steps_B1 = torch.arange(1, 2 * B, 2).view(-1, 1)
        self.register_buffer("words_BTV", torch.eye(V)[steps_B1 * torch.arange(T + 1) % V])

    def forward(self) -> Tensor:
        """(B, T, V)."""
        logits: Tensor = self.head(self.layers(self.words_BTV[:, :-1] @ self.word_VD + self.position_TD))
        return logits


class Classifies(Workload[TrainingParameters]):
    """A problem whose module has the logits of its `head`; without input all words are equally likely."""

    parameters, level_names = TrainingParameters, ("zero",)

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002
        bias = cast(nn.Linear, module.head).bias
        zero = torch.full_like(bias[0], len(bias)).log()
        return {"zero": zero, "solved": 0.1 * zero}

    def judge(self, parameters: TrainingParameters, evidence: Evidence) -> Verdicts:  # noqa: ARG002
        return judge_by_levels(evidence, {"zero": "degenerate_zero"})


class NextToken(Classifies):
    """Counting in steps of 1, 3, 5 and 7, modulo 8."""

    name, summary = "next_token", "which token comes next?"

    def build(self, parameters: TrainingParameters) -> nn.Module:  # noqa: ARG002
        return Transformer()

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:  # noqa: ARG002
        next_BTV = cast(Transformer, module).words_BTV[:, 1:]
        return -(torch.log_softmax(module(), dim=-1) * next_BTV).sum(-1).mean()


class Adder(nn.Module):
    """The logits (B, p) of the sums of pairs (B, 2): one causal block of four heads over two tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = Embedding(P, CHANNELS), Embedding(2, CHANNELS)
        self.block, self.head = TransformerBlock(CHANNELS, HEADS), Linear(CHANNELS, P)

    def forward(self, pair: Tensor) -> Tensor:
        """(B, p)."""
        x = self.token(pair) + self.position.weight
        out: Tensor = self.head(self.block(x, Sight.causal(x))[0][:, -1])
        return out


class Addition(Classifies):
    """a + b mod p on the same pairs in each step."""

    name, summary = "addition", "a + b mod 17"

    def __init__(self, n_pairs: int = P * P) -> None:
        self.pair = torch.cartesian_prod(torch.arange(P), torch.arange(P))[torch.linspace(0, P * P - 1, n_pairs).long()]

    def build(self, parameters: TrainingParameters) -> nn.Module:  # noqa: ARG002
        return Adder()

    def batch(self, lanes: Lanes[TrainingParameters], step: int) -> Batch:  # noqa: ARG002
        return {"pair": self.pair.expand(len(lanes.trainings), -1, -1)}

    def eval_batch(self, lanes: Lanes[TrainingParameters]) -> Batch:
        return self.batch(lanes, 0)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return cross_entropy(module(batch["pair"]), batch["pair"].sum(-1) % P)
