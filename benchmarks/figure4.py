"""Figure 4 of Chiang & Cholak 2022 against one training at a time.

    python benchmarks/figure4.py [--sample-epochs 2] [--epochs 100] [--out benchmarks/figure4.json]
    python benchmarks/figure4.py --device cuda [--seeds 2000]

The figure is 160 trainings of 100 epochs, 20 seeds a cell as in the paper. An epoch is 100 steps of one string, then
100 test strings of length 1,000. Three commands train it, all `attnsweep run chiang_fig4 --replicates 20`: `--engine
vmapped`, and `--engine blocks`, first with no compiled program on the machine (`blocks_cold`), then with the one that
is there (`blocks_warm`).
The peer, in the same run, is plain PyTorch written after the authors' procedure: `TransformerEncoderLayer`, one
training after the other, one string at a time, no shortcuts. It is timed for a sample of epochs at each length, with
one thread and with PyTorch's default, and the faster of the two counts. `lane_step` gives the cost of a step as a + b
lanes, fitted to packs of two sizes, and its arithmetic as a share of what a large matrix product reaches on one core.
With fewer `--epochs` the trainings of both sides are shorter. What a sweep costs whatever its length then weighs more,
so the ratios are below those of the figure.

With `--device cuda` no figure is drawn: it measures the steps per second of 8 configurations x `--seeds` lanes, and the
same share. This path has not been run on a GPU yet.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.flop_counter import FlopCounterMode

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.testing import defaults

LENGTHS = (10, 30, 100, 300)
SCALES = ("inv_sqrt_d", "log_n_query_inv_sqrt_d")
N_SEEDS, N_EPOCHS, N_STEPS, N_TESTS, TEST_LENGTH = 20, 100, 100, 100, 1000
ENGINES = {"vmapped": "vmapped", "blocks_cold": "blocks", "blocks_warm": "blocks"}
FIGURE_PACK = 80
"""Lanes per pack: half of the figure, for each of two trainers."""


def main() -> None:
    """Measures, and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--sample-epochs", type=int, default=2, help="epochs of the peer at each length")
    parser.add_argument("--epochs", type=int, default=N_EPOCHS, help="of each training")
    parser.add_argument("--seeds", type=int, default=2000, help="lanes per configuration, with --device cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = _on_cuda(options.seeds) if options.device == "cuda" else _on_cpu(options.sample_epochs, options.epochs)
    text = json.dumps({"benchmark": "figure4", "device": options.device, **found}, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def _on_cpu(sample_epochs: int, n_epochs: int) -> dict[str, object]:
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as home:
        commands = _commands(n_epochs)
        figures = {name: _figure(command, Path(home) / name, home) for name, command in commands.items()}
    n_threads = torch.get_num_threads()
    peers = {threads: _sequential_seconds(sample_epochs, threads) for threads in {1, n_threads}}
    totals = {threads: sum(each.values()) * len(SCALES) * N_SEEDS * n_epochs for threads, each in peers.items()}
    fastest = min(totals, key=lambda threads: totals[threads])
    torch.set_num_threads(1)
    for figure in figures.values():
        figure["times_sequential"] = round(totals[fastest] / figure["seconds"])
    return {
        "name": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "epochs": n_epochs,
        "figures": figures,
        "sequential": {
            f"{threads}_threads": {
                "seconds_per_epoch": {length: round(seconds, 3) for length, seconds in each.items()},
                "seconds_for_all_160": round(totals[threads]),
            }
            for threads, each in peers.items()
        },
        "lane_step": _lane_step("cpu", FIGURE_PACK),
    }


def _commands(n_epochs: int) -> dict[str, tuple[str, ...]]:
    figure = ("run", "chiang_fig4", "--replicates", f"{N_SEEDS}", "--set", f"n_epochs={n_epochs}")
    return {name: (*figure, "--engine", engine, "--dir", "sweep", "--json") for name, engine in ENGINES.items()}


def _on_cuda(n_seeds: int) -> dict[str, object]:
    n_lanes = len(LENGTHS) * len(SCALES) * n_seeds
    return {"name": torch.cuda.get_device_name(), "lane_step": _lane_step("cuda", n_lanes)}


def _figure(command: tuple[str, ...], home: Path, cache_home: str) -> dict[str, Any]:
    """Runs a whole command as a user would; returns its times, also by the ledger."""
    home.mkdir()
    attnsweep = str(Path(sys.executable).with_name("attnsweep"))
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db", "XDG_CACHE_HOME": cache_home}
    started = time.perf_counter()
    subprocess.run([attnsweep, *command], cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    [ledger] = home.glob("**/trainings")
    [(trainings, steps, spent, packs)] = duckdb.execute(
        f"select count(*), sum(n_steps), sum(train_seconds), list(distinct pack_size) from '{ledger}/*.parquet'"
    ).fetchall()
    return {
        "seconds": round(seconds, 1),
        "trainings": trainings,
        "lane_steps": int(steps),
        "pack_sizes": packs,
        "trainer_seconds": round(spent, 1),
        "lane_step_microseconds_with_probes": round(1e6 * spent / int(steps), 1),
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
    """The authors' model: CLS and the string in, one logit at CLS out."""

    def __init__(self, *, is_scaled: bool) -> None:
        super().__init__()
        self.word = nn.Embedding(3, 16)
        self.first, self.second = (_Layer(16, 1, 64, dropout=0.0) for _ in range(2))
        self.answer = nn.Linear(16, 1)
        self._is_scaled = is_scaled

    def forward(self, text: Tensor) -> Tensor:
        value = self.word(text)
        position = torch.zeros_like(value)
        position[1, 0] = 1.0
        value = (value + position).unsqueeze(1)
        for layer in (self.first, self.second):
            layer.factor = math.log(len(text)) if self._is_scaled else 1.0
            value = layer(value)
        logit: Tensor = self.answer(value[0, 0])[0]
        return logit


def _sequential_seconds(n_epochs: int, n_threads: int) -> dict[int, float]:
    """Seconds per epoch of one training, tests included, by length."""
    torch.set_num_threads(n_threads)
    return {length: _epoch_seconds(length, n_epochs) for length in LENGTHS}


def _epoch_seconds(length: int, n_epochs: int) -> float:
    torch.manual_seed(length)
    model = _Sequential(is_scaled=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    _epoch(model, optimizer, length, n_steps=10, n_tests=2)
    started = time.perf_counter()
    for _ in range(n_epochs):
        _epoch(model, optimizer, length, N_STEPS, N_TESTS)
    return (time.perf_counter() - started) / n_epochs


def _epoch(model: _Sequential, optimizer: torch.optim.Adam, length: int, n_steps: int, n_tests: int) -> list[float]:
    for _ in range(n_steps):
        text, label = _string(length)
        loss = binary_cross_entropy_with_logits(model(text), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    measured = []
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


def _lane_step(device: str, n_lanes: int) -> dict[str, float]:
    """The cost of one lane's step in a pack, without probes, and what bounds it."""
    few = max(n_lanes // 8, 2)
    small, large = (_step_seconds(device, size) for size in (few, n_lanes))
    per_lane = (large - small) / (n_lanes - few)
    pack = _pack(device, 8)
    with FlopCounterMode(display=False) as counter:
        pack.advance(1)
    flops = counter.get_total_flops() / 8
    reached = flops * n_lanes / large
    return {
        "lanes": n_lanes,
        "microseconds": round(1e6 * large / n_lanes, 2),
        "lane_steps_per_second": round(n_lanes / large),
        "microseconds_a_step_whatever_the_lanes": round(1e6 * (large - per_lane * n_lanes), 1),
        "microseconds_a_lane": round(1e6 * per_lane, 2),
        "matrix_flops_per_lane_step": round(flops),
        "share_of_matrix_rate": round(reached / _matrix_rate(device), 4),
    }


def _pack(device: str, n_lanes: int) -> Pack[FormalLanguagesParameters]:
    workload = FormalLanguages()
    parameters = [
        defaults(workload, train_length=length, attention_scale=scale, n_epochs=4, steps_per_epoch=2048,
                 eval_batch_size=1, test_batch_size=1, test_ladder=False, stop_when_solved=False)
        for length in LENGTHS for scale in SCALES
    ]  # fmt: skip
    pack = Pack(workload, [Training(parameters[lane % len(parameters)], lane) for lane in range(n_lanes)], device)
    pack.advance(30)
    return pack


def _step_seconds(device: str, n_lanes: int) -> float:
    pack = _pack(device, n_lanes)
    return min(_seconds(lambda: pack.advance(128), device) for _ in range(3)) / 128


def _matrix_rate(device: str) -> float:
    """Single-precision operations a second, by a product of large matrices."""
    matrix = torch.randn(2048, 2048, device=device)
    return 2 * 2048**3 / min(_seconds(lambda: matrix @ matrix, device) for _ in range(3))


def _seconds(call: Callable[[], object], device: str) -> float:
    started = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
