"""MAJORITY: are most of an odd number of bits ones? One block reads them, and their mean answers."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import attnsweep as at


class Reader(nn.Module):
    def __init__(self, d_model: int = 8) -> None:
        super().__init__()
        self.embedding, self.block = at.Embedding(2, d_model), at.TransformerBlock(d_model)
        self.head = at.Linear(d_model, 1)

    def forward(self, bit: Tensor) -> Tensor:
        x = self.embedding(bit)
        return self.head(self.block(x, at.Sight.everything(x))[0].mean(1))[:, 0]


class Majority(at.Workload[at.TrainingParameters]):
    name, summary = "majority", "are most of 15 bits ones?"
    parameters, level_names = at.TrainingParameters, ("zero",)
    verdicts = at.VerdictTable(
        (
            at.Rule.diverged(),
            at.Rule.solved(),
            at.AtLevel(outcome="degenerate_zero", level="zero", says="both answers are equally likely"),
            at.Rule.moving(),
        )
    )

    def build(self, parameters: at.TrainingParameters) -> nn.Module:
        return Reader()

    def batch(self, lanes: at.Lanes[at.TrainingParameters], step: int, use: str = "train") -> at.Batch:
        bit = lanes.streams.integers(use, (64, 15), 2, step)
        return {"bit": bit, "sign": (2.0 * bit - 1.0).sum(-1).sign().to(lanes.dtype)}

    def eval_batch(self, lanes: at.Lanes[at.TrainingParameters]) -> at.Batch:
        return self.batch(lanes, 0, "eval")

    def loss(self, module: nn.Module, batch: at.Batch) -> Tensor:
        return softplus(-batch["sign"] * module(batch["bit"])).mean()  # nats

    def levels(self, module: nn.Module, batch: at.Batch) -> dict[str, Tensor]:
        return {"zero": torch.full_like(batch["sign"][0], math.log(2)), "solved": batch["sign"].new_tensor(0.1)}


def sweep() -> at.Sweep:
    space = {"init_sigma": at.Float(1e-3, 1.0, log=True), "optimizer": "adam", "n_steps": 400, "dtype": "float32"}
    return at.Sweep(name="majority", workload="majority.py:Majority", space=space, trials=8, replicates=2)
