"""First word: say at each position which word the sequence began with. A head with its own role, map and verdicts."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import attnsweep as at

WORDS, N_TOKENS = "abcd", 6


class Reader(nn.Module):
    """One head that sees positions only, made of none of attnsweep's parts."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(N_TOKENS, N_TOKENS))
        self.value = nn.Parameter(torch.zeros(len(WORDS), len(WORDS)))

    def forward(self, token: Tensor) -> Tensor:
        return self.logits.softmax(-1) @ self.value[token]


VERDICTS = at.VerdictTable(
    (
        at.Rule.diverged(),
        at.Rule.solved("loss below 0.1 nats"),
        at.AtLevel(outcome="degenerate_zero", level="zero", says="log 4: all words are equally likely"),
        at.Rule(
            outcome="marginal",
            details=("uniform",),
            when=lambda _, evidence: evidence.metrics["first_share"] < 1.5 / N_TOKENS,
            says="the first word gets less than one and a half times its uniform share of attention",
        ),
        at.Rule.moving(),
    )
)


class FirstWord(at.Workload[at.TrainingParameters]):
    name, summary = "first_word", "which word was the first?"
    parameters, level_names = at.TrainingParameters, ("zero",)
    head_score_names, verdicts = ("first_share",), VERDICTS
    lenses = at.Lenses(
        attention=lambda module, batch: [module.logits.softmax(-1).expand(len(batch["token"]), 1, -1, -1)],
        vocabulary=lambda _: WORDS,
    )

    def build(self, parameters: at.TrainingParameters) -> nn.Module:
        return Reader()

    def batch(self, lanes: at.Lanes[at.TrainingParameters], step: int, use: str = "train") -> at.Batch:
        return {"token": lanes.streams.integers(use, (64, N_TOKENS), len(WORDS), step)}

    def eval_batch(self, lanes: at.Lanes[at.TrainingParameters]) -> at.Batch:
        return self.batch(lanes, 0, "eval")

    def loss(self, module: nn.Module, batch: at.Batch) -> Tensor:
        first = batch["token"][:, :1].expand(-1, N_TOKENS)
        return cross_entropy(module(batch["token"]).flatten(0, 1), first.flatten())

    def measure(self, module: nn.Module, batch: at.Batch) -> dict[str, Tensor]:
        return {"first_share": module.logits.softmax(-1)[:, 0].mean()}

    def levels(self, module: nn.Module, batch: at.Batch) -> dict[str, Tensor]:
        return {"zero": module.value.new_tensor(math.log(len(WORDS))), "solved": module.value.new_tensor(0.1)}

    def score_heads(self, lanes: at.Lanes[at.TrainingParameters], state: at.State) -> at.HeadScores:
        share = state["logits"].softmax(-1)[:, :, 0].mean(-1).double().cpu().numpy()[:, None, None]
        return at.HeadScores(scores={"first_share": share}, role=np.where(share > 0.5, "first", "none"))


def sweep() -> at.Sweep:
    space = {"init_sigma": at.Float(1e-3, 1.0, log=True), "optimizer": "adam", "learning_rate": 0.05, "n_steps": 200}
    return at.Sweep(name="first_word", workload="first_word.py:FirstWord", space=space, trials=8, replicates=2)
