"""The kinds of modules that docs/problem.md names, each as a workload of one small module."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from attnsweep.workloads.engine.contract import Batch, Lanes
from tests.workloads.engine.any_module import AnyModule, AnyParameters
from tests.workloads.models.borrowed import BORROWED

WORDS = 7


@dataclass(frozen=True)
class Kind:
    """A kind of module.

    Attributes:
        build: The module of one training.
        answer: What it answers on `x` (B, T, D) and `token` (B, T).
        needs: A package that it comes from.
        not_compiled: Why its steps cannot be compiled; empty if they can.
        refused: What is said of it, if it cannot be trained.
    """

    build: Callable[[], nn.Module]
    answer: Callable[[Any, Batch], Tensor] = lambda module, batch: module(batch["x"])
    needs: str = ""
    not_compiled: str = ""
    refused: str = ""
    width: int = 8
    n_tokens: int = 4

    @property
    def engine(self) -> str:
        """What takes its steps, as in the table."""
        return "none" if self.refused else "eager" if self.not_compiled else "compiled"


class KindWorkload(AnyModule):
    """Trains a kind of module on data that differ from step to step."""

    def __init__(self, kind: Kind, n_sequences: int = 3) -> None:
        super().__init__(lambda _: kind.build())
        self._kind, self._shape = kind, (n_sequences, kind.n_tokens, kind.width)

    def batch(self, lanes: Lanes[AnyParameters], step: int, use: str = "train") -> Batch:
        token = lanes.streams.integers(f"{use}/token", self._shape[:2], WORDS, step)
        x = lanes.streams.normal(use, self._shape, step).to(lanes.dtype)
        return {"token": token, "x": x}

    def eval_batch(self, lanes: Lanes[AnyParameters]) -> Batch:
        return self.batch(lanes, 0, "eval")

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return (1 + self._kind.answer(module, batch)).square().mean()


class _Fused(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self._split(super().forward(x))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    @staticmethod
    def _split(x: Tensor) -> tuple[Tensor, ...]:
        return x.view(*x.shape[:-1], 3, 2, -1).movedim(-3, 0).transpose(2, 3).unbind(0)


class _Branching(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if y.sum() > 0 else -y


class _Counted(nn.Linear):
    n_calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.n_calls += 1
        return super().forward(x)


class _InPlace(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros(4)
        y[0] = super().forward(x).sum()
        return y


class _Noisy(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + torch.randn_like(x))


def _of_words(module: Any, batch: Batch) -> Tensor:
    answer: Tensor = module(batch["token"])
    return answer


def _logits(module: Any, batch: Batch) -> Tensor:
    answer: Tensor = module(batch["token"]).logits
    return answer


def _channels(module: Any, batch: Batch) -> Tensor:
    answer: Tensor = module(batch["x"].transpose(1, 2))
    return answer


def kinds(width: int = 8, n_tokens: int = 4) -> dict[str, Kind]:
    """The kinds by their names in the table, which answer on vectors of this width."""
    transformer: dict[str, Any] = {"d_model": width, "nhead": 2, "dim_feedforward": 2 * width, "batch_first": True}
    found = {
        "nn.Linear": Kind(lambda: nn.Linear(width, 3)),
        "nn.Embedding": Kind(lambda: nn.Embedding(WORDS, width, padding_idx=0), _of_words),
        "nn.EmbeddingBag": Kind(
            lambda: nn.EmbeddingBag(WORDS, width),
            _of_words,
            not_compiled="aten._embedding_bag.default cannot be compiled",
        ),
        "nn.Conv1d": Kind(
            lambda: nn.Conv1d(width, 3, 2), _channels, not_compiled="aten.convolution.default cannot be compiled"
        ),
        "nn.LSTM": Kind(
            lambda: nn.LSTM(width, 4),
            lambda module, batch: module(batch["x"])[0],
            refused="an operation that has no form for many trainings at once",
        ),
        "nn.LayerNorm": Kind(lambda: nn.Sequential(nn.Linear(width, 4), nn.LayerNorm(4))),
        "nn.RMSNorm": Kind(lambda: nn.Sequential(nn.Linear(width, 4), nn.RMSNorm(4))),
        "nn.GroupNorm": Kind(lambda: nn.Sequential(nn.Linear(width, 4), nn.GroupNorm(2, n_tokens))),
        "nn.BatchNorm1d": Kind(
            lambda: nn.Sequential(nn.Linear(width, 4), nn.BatchNorm1d(n_tokens)),
            refused="a change of its values while loss was computed",
        ),
        "nn.BatchNorm1d(track_running_stats=False)": Kind(
            lambda: nn.Sequential(nn.Linear(width, 4), nn.BatchNorm1d(n_tokens, track_running_stats=False))
        ),
        "nn.Dropout": Kind(lambda: nn.Sequential(nn.Linear(width, 4), nn.Dropout(0.3), nn.Linear(4, 2))),
        "torch.randn_like in forward": Kind(
            lambda: _Noisy(width, 4), refused="a random draw, for example by torch.randn_like"
        ),
        "scaled_dot_product_attention": Kind(lambda: _Fused(width, 3 * width)),
        "nn.MultiheadAttention": Kind(
            lambda: nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True),
            lambda module, batch: module(*[batch["x"]] * 3)[0],
        ),
        "nn.TransformerEncoderLayer": Kind(lambda: nn.TransformerEncoderLayer(**transformer)),
        "nn.TransformerEncoder": Kind(
            lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(**transformer), 2, enable_nested_tensor=False)
        ),
        "parametrizations.weight_norm": Kind(lambda: parametrizations.weight_norm(nn.Linear(width, 4))),
        "parametrizations.spectral_norm": Kind(
            lambda: parametrizations.spectral_norm(nn.Linear(width, 4)),
            refused="an operation that has no form for many trainings at once",
        ),
        "a counter in `forward`": Kind(lambda: _Counted(width, 4), refused="of the module: got 'a change from"),
        "`if` on a tensor": Kind(lambda: _Branching(width, 4), refused="a decision by the value of a tensor"),
        "a write into torch.zeros": Kind(
            lambda: _InPlace(width, 4), refused="a change in place of a tensor that all trainings share"
        ),
        "nanoGPT": Kind(lambda: BORROWED.NanoGPT(WORDS, width, n_tokens, dropout=0.1), _of_words),
        "GPT2LMHeadModel": Kind(lambda: BORROWED.gpt2(WORDS, width, n_tokens, dropout=0.1), _logits, "transformers"),
        "LlamaForCausalLM": Kind(lambda: BORROWED.llama(WORDS, width, n_tokens), _logits, "transformers"),
        "TransformerBridge": Kind(
            lambda: BORROWED.transformer_lens(WORDS, width, n_tokens), _of_words, "transformer_lens"
        ),
    }
    return {name: replace(kind, width=width, n_tokens=n_tokens) for name, kind in found.items()}


KINDS = kinds()
