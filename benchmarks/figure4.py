"""Figure 4 of Chiang & Cholak 2022 against one training at a time.

    python benchmarks/figure4.py [--sample-epochs 2] [--epochs 100] [--out benchmarks/figure4.json]

The figure is 160 trainings of 100 epochs, 20 seeds a cell as in the paper. An epoch is 100 steps of one string, then
100 test strings of length 1,000. Three commands train it, all `attnsweep run chiang_fig4 --replicates 20`: `--engine
vmapped`, and `--engine blocks`, first with no compiled program on the machine (`blocks_cold`), then with the one that
is there (`blocks_warm`).
The peer, in the same run, is plain PyTorch written after the authors' procedure: `TransformerEncoderLayer`, one
training after the other, one string at a time, no shortcuts. It is timed for a sample of epochs at each length, with
one thread and with PyTorch's default, and the faster of the two counts.
With fewer `--epochs` the trainings of both sides are shorter. What a sweep costs whatever its length then weighs more,
so the ratios are below those of the figure. A lane's step alone is measured by `blocks.py` and `products.py`, on a GPU
by `gpu.py`.
"""

import math
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import torch
from harness import attnsweep_command, main, spent_by, timed
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

LENGTHS = (10, 30, 100, 300)
N_SCALES, N_SEEDS, N_STEPS, N_TESTS, TEST_LENGTH = 2, 20, 100, 100, 1000
ENGINES = {"vmapped": "vmapped", "blocks_cold": "blocks", "blocks_warm": "blocks"}


def measure(*, sample_epochs: int = 2, epochs: int = 100) -> dict[str, Any]:
    """Measures the commands and the peer."""
    with tempfile.TemporaryDirectory() as home:
        figures = {name: _figure(engine, epochs, Path(home, name), home) for name, engine in ENGINES.items()}
    peers = {threads: _seconds_per_epoch(sample_epochs, threads) for threads in {1, torch.get_num_threads()}}
    totals = {threads: sum(each.values()) * N_SCALES * N_SEEDS * epochs for threads, each in peers.items()}
    for figure in figures.values():
        figure["times_sequential"] = round(min(totals.values()) / figure["seconds"])
    sequential = {
        f"{threads}_threads": {
            "seconds_per_epoch": {length: round(seconds, 3) for length, seconds in each.items()},
            "seconds_for_all_160": round(totals[threads]),
        }
        for threads, each in peers.items()
    }
    return {"epochs": epochs, "figures": figures, "sequential": sequential}


def _figure(engine: str, n_epochs: int, home: Path, cache_home: str) -> dict[str, Any]:
    """Runs a whole command as a user would; returns its times, also by the ledger."""
    home.mkdir()
    words = ("run", "chiang_fig4", "--replicates", f"{N_SEEDS}", "--set", f"n_epochs={n_epochs}", "--engine", engine)
    command = attnsweep_command(*words, "--dir", "sweep", "--json")
    spent = spent_by(command, home, MLFLOW_TRACKING_URI="sqlite:///mlflow.db", XDG_CACHE_HOME=cache_home)
    [ledger] = home.glob("**/trainings")
    [(trainings, steps, seconds, packs)] = duckdb.execute(
        f"select count(*), sum(n_steps), sum(train_seconds), list(distinct pack_size) from '{ledger}/*.parquet'"
    ).fetchall()
    return {
        **spent.figures(),
        "trainings": trainings,
        "lane_steps": int(steps),
        "pack_sizes": packs,
        "trainer_seconds": round(seconds, 1),
        "lane_step_microseconds_with_probes": round(1e6 * seconds / int(steps), 1),
    }


class _Layer(nn.TransformerEncoderLayer):
    """Keeps its attention weights for the figure, and scales the query's input as the authors do."""

    factor = 1.0
    weights: Tensor

    def forward(self, src: Tensor) -> Tensor:  # type: ignore[override]
        mixed, self.weights = self.self_attn(src * self.factor, src, src)
        src = self.norm1(src + mixed)
        normal: Tensor = self.norm2(src + self.linear2(torch.relu(self.linear1(src))))
        return normal


class _Sequential(nn.Module):
    """The authors' model with scaled logits: CLS and the string in, one logit at CLS out."""

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(3, 16)
        self.first, self.second = (_Layer(16, 1, 64, dropout=0.0) for _ in range(2))
        self.answer = nn.Linear(16, 1)

    def forward(self, text: Tensor) -> Tensor:
        value = self.word(text)
        position = torch.zeros_like(value)
        position[1, 0] = 1.0
        value = (value + position).unsqueeze(1)
        for layer in (self.first, self.second):
            layer.factor = math.log(len(text))
            value = layer(value)
        logit: Tensor = self.answer(value[0, 0])[0]
        return logit


def _seconds_per_epoch(n_epochs: int, n_threads: int) -> dict[int, float]:
    """Of one training, tests included, by length."""
    torch.set_num_threads(n_threads)
    found = {}
    for length in LENGTHS:
        torch.manual_seed(length)
        model = _Sequential()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
        _epochs(1, model, optimizer, length, n_steps=10, n_tests=2)
        epochs = (n_epochs, model, optimizer, length)
        found[length] = timed(lambda epochs=epochs: _epochs(*epochs), time.perf_counter) / n_epochs  # type: ignore[misc]
    return found


def _epochs(
    n_epochs: int,
    model: _Sequential,
    optimizer: torch.optim.Adam,
    length: int,
    n_steps: int = N_STEPS,
    n_tests: int = N_TESTS,
) -> list[float]:
    measured = []
    for _ in range(n_epochs):
        for _ in range(n_steps):
            text, label = _string(length)
            loss = binary_cross_entropy_with_logits(model(text), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for _ in range(n_tests):
                text, label = _string(TEST_LENGTH)
                logit = model(text)
                attention = sum(layer.weights[0, 0, 1].item() for layer in (model.first, model.second))
                loss = binary_cross_entropy_with_logits(logit, label)
                measured.append(loss.item() + float((logit > 0) == (label > 0.5)) + attention)
    return measured


def _string(length: int) -> tuple[Tensor, Tensor]:
    bits = torch.randint(2, (length,))
    return torch.cat([torch.tensor([2]), bits]), bits[0].float()


if __name__ == "__main__":
    main(measure)
