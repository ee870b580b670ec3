"""A segment of different tokens, repeated: two causal blocks predict each token of the repetition."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import attnsweep as at


@dataclass(frozen=True, kw_only=True)
class InductionParameters(at.TrainingParameters):
    n_words: int = at.parameter(8, "size of the vocabulary; a segment has half of it or more", low=4, static=True)
    layer_norm_eps: float = at.parameter(1e-5, "added to the variance, inside the root", low=0.0)


class TwoBlocks(nn.Module):
    def __init__(self, n_words: int, layer_norm_eps: float, d_model: int = 16) -> None:
        super().__init__()
        self.word, self.position = at.Embedding(n_words, d_model), at.Embedding(2 * n_words - 1, d_model)
        self.first, self.second = (at.TransformerBlock(d_model, layer_norm_eps=layer_norm_eps) for _ in range(2))
        self.head = at.Linear(d_model, n_words)

    def forward(self, token: Tensor) -> tuple[Tensor, Tensor]:
        x = self.word(token) + self.position.weight
        x, first_map = self.first(x, at.Sight.causal(x))
        x, second_map = self.second(x, at.Sight.causal(x))
        return self.head(x), torch.stack([first_map, second_map])


class Induction(at.Workload[InductionParameters]):
    name, summary, parameters = "induction", "the next token of a repeated random segment", InductionParameters
    level_names, head_score_names = ("zero", "context"), at.PATTERN_SCORE_NAMES
    verdicts = at.VerdictTable(
        (
            at.Rule.diverged(),
            at.Rule.solved(),
            at.AtLevel(outcome="marginal", level="context", says="knows the segment's words, not their order"),
            at.AtLevel(outcome="degenerate_zero", level="zero", says="all words are equally likely"),
            at.Rule.moving(),
        )
    )

    def build(self, parameters: InductionParameters) -> TwoBlocks:
        return TwoBlocks(parameters.n_words, parameters.layer_norm_eps)

    def batch(self, lanes: at.Lanes[InductionParameters], step: int, use: str = "train") -> at.Batch:
        n = lanes.shared.n_words
        length = n - lanes.streams.integers(f"{use}/length", (64, 1), n // 2 + 1, step)
        position = torch.arange(2 * n, device=lanes.device)
        token = lanes.streams.uniform(f"{use}/words", (64, n), step).argsort(-1).gather(-1, position % length)
        counts, target = position[:-1] >= length, token[..., 1:]
        return {"token": token[..., :-1], "target": target, "counts": counts, "needs_previous": ~counts}

    def eval_batch(self, lanes: at.Lanes[InductionParameters]) -> at.Batch:
        return self.batch(lanes, 0, "eval")

    def loss(self, module: nn.Module, batch: at.Batch) -> Tensor:
        nats = cross_entropy(module(batch["token"])[0].transpose(1, 2), batch["target"], reduction="none")
        return (nats * batch["counts"]).sum() / batch["counts"].sum()

    def levels(self, module: nn.Module, batch: at.Batch) -> dict[str, Tensor]:
        length = (~batch["counts"]).sum(-1, keepdim=True)
        context = ((length - 1.0).log() * batch["counts"]).sum() / batch["counts"].sum()  # knows the segment's tokens
        zero = context.new_tensor(module.word.num_embeddings).log()
        return {"zero": zero, "context": context, "solved": 0.1 * context}

    def score_heads(self, lanes: at.Lanes[InductionParameters], state: at.State) -> at.HeadScores:
        module, batch = self.build(lanes.shared), self.eval_batch(lanes)
        return at.score_patterns(module, lambda module, token: module(token)[1], lanes, state, batch)


def sweep() -> at.Sweep:
    fixed = {"init_sigma": None, "optimizer": "adam", "learning_rate": 3e-3, "n_steps": 600, "dtype": "float32"}
    space = fixed | {"layer_norm_eps": at.Float(1e-6, 1.0, log=True)}
    return at.Sweep(name="induction", workload="induction.py:Induction", space=space, trials=8, replicates=2)
