"""CPU time of a training's step in small packs, against PyTorch alone: what gains by fusing, and what does not.

    python benchmarks/small_packs.py [--rounds 3] [--sizes 1 4 16] [--out benchmarks/small_packs.json]

One causal block of four heads over two tokens adds modulo p = 17 with d = 24 (AdamW, float32). A step sees a few of
the 289 sums, or all of them. `loop` trains one after the other with `torch.optim.AdamW`,
`vmapped` all at once. One thread, in turns; CPU seconds are counted, so that other programs disturb little.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults

P, D, HEADS = 17, 24, 4
BATCHES = (8, 32, P * P)
STEPS = 20


class Adder(nn.Module):
    """The logits (B, p) of the sums of pairs (B, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = Embedding(P, D), Embedding(2, D)
        self.block, self.head = TransformerBlock(D, HEADS), Linear(D, P)

    def forward(self, pair: Tensor) -> Tensor:
        """(B, p)."""
        x = self.token(pair) + self.position.weight
        out: Tensor = self.head(self.block(x, Sight.causal(x))[0][:, -1])
        return out


class Addition(Workload[TrainingParameters]):
    """a + b mod p on the same pairs in each step."""

    name, summary, parameters, level_names = "addition", "a + b mod 17", TrainingParameters, ("zero",)

    def __init__(self, n_pairs: int) -> None:
        self.pair = torch.cartesian_prod(torch.arange(P), torch.arange(P))[torch.linspace(0, P * P - 1, n_pairs).long()]

    def build(self, parameters: TrainingParameters) -> nn.Module:  # noqa: ARG002
        return Adder()

    def batch(self, lanes: Lanes[TrainingParameters], step: int) -> Batch:  # noqa: ARG002
        return {"pair": self.pair.expand(len(lanes.trainings), -1, -1)}

    def eval_batch(self, lanes: Lanes[TrainingParameters]) -> Batch:
        return self.batch(lanes, 0)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return cross_entropy(module(batch["pair"]), batch["pair"].sum(-1) % P)

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002
        zero = torch.full_like(module.head.bias[0], P).log()  # type: ignore[index, union-attr]
        return {"zero": zero, "solved": 0.1 * zero}

    def judge(self, parameters: TrainingParameters, evidence: Evidence) -> Verdicts:  # noqa: ARG002
        return judge_by_levels(evidence, {"zero": "degenerate_zero"})


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", nargs="*", type=int, default=[1, 4, 16])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(n_pairs, options.sizes, options.rounds) for n_pairs in BATCHES]
    text = json.dumps({"benchmark": "small_packs", "rows": rows}, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def measure(n_pairs: int, sizes: list[int], rounds: int) -> dict[str, Any]:
    """Milliseconds of CPU that a training's step takes in a loop, and vmapped by pack size."""
    workload = Addition(n_pairs)
    settings: dict[str, Any] = {"n_steps": 10**6, "optimizer": "adamw", "dtype": "float32", "init_sigma": 0.2}
    settings["stop_when_solved"] = False
    parameters = defaults(workload, **settings)
    advances: dict[str, tuple[Callable[[int], object], int]] = {"loop": (_loop(workload), 1)}
    for size in sizes:
        pack = Pack(workload, [Training(parameters, seed) for seed in range(size)])
        advances[str(size)] = pack.advance, size
    taken: dict[str, list[float]] = {name: [] for name in advances}
    for _ in range(rounds + 1):
        for name, (advance, size) in advances.items():
            started = time.process_time()
            advance(STEPS)
            taken[name].append(1e3 * (time.process_time() - started) / STEPS / size)
    # The first round warms up.
    return {
        "n_pairs": n_pairs,
        "milliseconds": {name: round(statistics.median(each[1:]), 3) for name, each in taken.items()},
    }


def _loop(workload: Addition) -> Callable[[int], object]:
    torch.manual_seed(0)
    module = Adder()
    for value in module.parameters():
        nn.init.normal_(value, 0.0, 0.2)
    optimizer = torch.optim.AdamW(module.parameters())

    def advance(n_steps: int) -> None:
        for _ in range(n_steps):
            optimizer.zero_grad()
            workload.loss(module, {"pair": workload.pair}).backward()
            optimizer.step()

    return advance


if __name__ == "__main__":
    main()
