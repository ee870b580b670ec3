"""Two layers of attention that predict the next token, written as a user would write them. Nothing knows of blocks.

Axes: B sequence, T token, D channel, V word.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from attnsweep import Batch, Evidence, TrainingParameters, Verdicts, Workload, has_diverged, parameter

B, T, D, V = 4, 8, 16, 8


@dataclass(frozen=True, kw_only=True)
class NextTokenParameters(TrainingParameters):
    """Those of every training."""

    optimizer: str = parameter("adam", "update rule", choices=("sgd", "adam"), static=True)
    dtype: str = parameter("float32", "floating-point type", choices=("float32", "float64"), static=True)


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
        self.answer = nn.Linear(D, V)
        steps_B1 = torch.arange(1, 2 * B, 2).view(-1, 1)
        self.register_buffer("words_BTV", torch.eye(V)[steps_B1 * torch.arange(T + 1) % V])

    def forward(self) -> Tensor:
        """(B, T, V)."""
        logits: Tensor = self.answer(self.layers(self.words_BTV[:, :-1] @ self.word_VD + self.position_TD))
        return logits


class NextToken(Workload[NextTokenParameters]):
    """Counting in steps of 1, 3, 5 and 7, modulo 8."""

    name = "next_token"
    parameters = NextTokenParameters
    summary = "which token comes next?"

    def build(self, parameters: NextTokenParameters) -> nn.Module:  # noqa: ARG002
        return Transformer()

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:  # noqa: ARG002
        next_BTV = cast(Transformer, module).words_BTV[:, 1:]
        return -(torch.log_softmax(module(), dim=-1) * next_BTV).sum(-1).mean()

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"solved": self.loss(module, batch).new_tensor(0.01)}

    def judge(self, parameters: NextTokenParameters, evidence: Evidence) -> Verdicts:  # noqa: ARG002
        loss = evidence.metrics["eval_loss"]
        return Verdicts.first_of(
            {
                "diverged": has_diverged(loss, evidence.levels["solved"]),
                "solved": loss < evidence.levels["solved"][:, None],
            }
        )
