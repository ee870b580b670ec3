"""look_back: after each word, say the word before it. A beginning: change the data, the model and the levels to yours.

A workload is a training problem: parameters, an nn.Module for ONE training, data, a loss, reference levels and a
function that says how each training ended. The engine trains many of them in one program.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import attnsweep as at


@dataclass(frozen=True, kw_only=True)
class LookBackParameters(at.TrainingParameters):
    """What a sweep may vary, beside init_sigma, optimizer, learning_rate, n_steps and the others of every training."""

    # static: it changes a tensor's shape, so trainings that differ in it do not share a program.
    n_words: int = at.parameter(8, "size of the vocabulary", low=2, static=True)
    n_tokens: int = at.parameter(12, "words per sequence", low=2, static=True)
    d_model: int = at.parameter(16, "width of the model", low=1, static=True)
    # Not static: trainings that differ in it are trained together.
    layer_norm_eps: float = at.parameter(1e-5, "added to the variance, inside the root", low=0.0)


class LookBackModel(nn.Module):
    """One causal block. It draws no random numbers: the engine does, from the seed of each training."""

    def __init__(self, parameters: LookBackParameters) -> None:
        super().__init__()
        self.word = at.Embedding(parameters.n_words, parameters.d_model)
        self.position = at.Embedding(parameters.n_tokens, parameters.d_model)
        # Also: n_heads=, d_ffn=, activation=, qk="merged", qk_rank=, attention_scale=.
        self.block = at.TransformerBlock(parameters.d_model, layer_norm_eps=parameters.layer_norm_eps)
        self.head = at.Linear(parameters.d_model, parameters.n_words)

    def forward(self, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits (sequence, token, word), and the attention weights (layer, sequence, head, query, key)."""
        x = self.word(token) + self.position.weight
        # The mask; at.Sight.everything(x), or at.Sight.of(seen, x.dtype) for one of your own.
        x, weights = self.block(x, at.Sight.causal(x))
        return self.head(x), torch.stack([weights])


class LookBack(at.Workload[LookBackParameters]):
    """The training problem."""

    name = "look_back"
    summary = "which word came before?"
    parameters = LookBackParameters
    level_names = ("zero",)
    head_score_names = at.PATTERN_SCORE_NAMES

    def build(self, parameters: LookBackParameters) -> nn.Module:
        """The module of one training."""
        return LookBackModel(parameters)

    def batch(self, lanes: at.Lanes[LookBackParameters], step: int, use: str = "train") -> at.Batch:
        """The data of a step, (training, sequence, ...): a function of seed and step alone."""
        shape = (64, lanes.shared.n_tokens)
        token = lanes.streams.integers(use, shape, lanes.shared.n_words, step)
        # The tokens at which score_heads looks: all. The loss does not read these two.
        everywhere = torch.ones_like(token, dtype=torch.bool)
        return {"token": token, "counts": everywhere, "needs_previous": everywhere}

    def eval_batch(self, lanes: at.Lanes[LookBackParameters]) -> at.Batch:
        """The data of the probes, which no step sees."""
        return self.batch(lanes, 0, "eval")

    def loss(self, module: nn.Module, batch: at.Batch) -> torch.Tensor:
        """The loss of one training, in nats; the first word has none before it."""
        logits, _ = module(batch["token"])
        return cross_entropy(logits[:, 1:].flatten(0, 1), batch["token"][:, :-1].flatten())

    def levels(self, module: nn.Module, batch: at.Batch) -> dict[str, torch.Tensor]:
        """Losses to compare with: `solved`, below which a training counts as solved, and those of level_names."""
        logits, _ = module(batch["token"])
        zero = torch.full_like(logits[0, 0, 0], logits.shape[-1]).log()  # all words are equally likely
        return {"zero": zero, "solved": 0.1 * zero}

    def judge(self, parameters: LookBackParameters, evidence: at.Evidence) -> at.Verdicts:
        """How each training ended: at one of the levels, solved, diverged, or a plateau."""
        return at.judge_by_levels(evidence, {"zero": "degenerate_zero"})

    def score_heads(self, lanes: at.Lanes[LookBackParameters], state: at.State) -> at.HeadScores:
        """What the heads do: previous_token, induction or none. Leave it out if you do not ask."""
        module, batch = self.build(lanes.shared), self.eval_batch(lanes)
        return at.score_patterns(module, lambda module, token: module(token)[1], lanes, state, batch)


def sweep() -> at.Sweep:
    """What `attnsweep run look_back.py` runs: 8 configurations with 4 seeds each."""
    return at.Sweep(
        name="look_back",
        workload="look_back.py:LookBack",
        space={
            "init_sigma": at.Float(1e-4, 1.0, log=True),
            "optimizer": "adam",
            "learning_rate": 1e-2,
            "n_steps": 400,
            "dtype": "float32",
        },
        trials=8,
        replicates=4,
    )


if __name__ == "__main__":
    at.check_workload(LookBack(), [LookBackParameters(), LookBackParameters(init_sigma=1e-3)], quick=True)
