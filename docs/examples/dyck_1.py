"""DYCK-1: after each bracket of the beginning of a balanced word, may the next one close? A causal block answers."""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import attnsweep as at


class Reader(nn.Module):
    def __init__(self, d_model: int = 16) -> None:
        super().__init__()
        self.embedding, self.block = at.Embedding(2, d_model), at.TransformerBlock(d_model)
        self.head = at.Linear(d_model, 1)

    def forward(self, bracket: Tensor) -> Tensor:
        x = self.embedding(bracket)
        return self.head(self.block(x, at.Sight.causal(x))[0])[..., 0]


class Dyck1(at.Workload[at.TrainingParameters]):
    name, summary = "dyck_1", "may the next of 16 brackets close?"
    parameters, level_names = at.TrainingParameters, ("zero", "position")
    verdicts = at.VerdictTable(
        (
            at.Rule.diverged(),
            at.Rule.solved(),
            at.AtLevel(outcome="marginal", level="position", says="knows the position only"),
            at.AtLevel(outcome="degenerate_zero", level="zero", says="both answers are equally likely"),
            at.Rule.moving(),
        )
    )

    def build(self, parameters: at.TrainingParameters) -> nn.Module:
        return Reader()

    def batch(self, lanes: at.Lanes[at.TrainingParameters], step: int, use: str = "train") -> at.Batch:
        # The depth is a random walk that turns at 0: the absolute value of a free one.
        depth = (2 * lanes.streams.integers(use, (64, 16), 2, step) - 1).cumsum(-1).abs()
        opens = depth.diff(dim=-1, prepend=torch.zeros_like(depth[..., :1])) > 0
        return {"bracket": opens.long(), "sign": torch.where(depth > 0, 1.0, -1.0).to(lanes.dtype)}

    def eval_batch(self, lanes: at.Lanes[at.TrainingParameters]) -> at.Batch:
        return self.batch(lanes, 0, "eval")

    def loss(self, module: nn.Module, batch: at.Batch) -> Tensor:
        return softplus(-batch["sign"] * module(batch["bracket"])).mean()  # nats

    def levels(self, module: nn.Module, batch: at.Batch) -> dict[str, Tensor]:
        share = (batch["sign"] > 0).to(batch["sign"]).mean(0)  # at each position
        position = (torch.special.entr(share) + torch.special.entr(1 - share)).mean()
        return {"zero": torch.full_like(position, 2).log(), "position": position, "solved": 0.1 * position}


def sweep() -> at.Sweep:
    space = {"init_sigma": at.Float(1e-3, 1.0, log=True), "optimizer": "adam", "n_steps": 1000, "dtype": "float32"}
    return at.Sweep(name="dyck_1", workload="dyck_1.py:Dyck1", space=space, trials=8, replicates=2)
