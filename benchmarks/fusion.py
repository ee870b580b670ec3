"""Training steps per second: packs against one training alone, for the reduced category-pairs systems.

    python benchmarks/fusion.py [--device cpu|cuda] [--sizes 1 16 64 256 1024] [--out benchmarks/fusion.json]

One thread on the CPU, as in a trainer. The peer, in the same run, is a plain PyTorch loop over one training with
`torch.optim.SGD`. Needs torch, numpy and pyarrow only.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()
SECONDS = 3.0
"""How long each rate is measured."""


def main() -> None:
    """Measures all sizes and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 16, 64, 256, 1024])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(variant, options.device, options.sizes) for variant in ("positions_only", "categories_only")]
    name = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    text = json.dumps({"benchmark": "fusion", "device": options.device, "name": name, "rows": rows}, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def measure(variant: str, device: str, sizes: list[int]) -> dict[str, object]:
    """Steps per second of the plain loop, and lane-steps per second of packs by size. Wants one thread on the CPU."""
    peer = _rate(_plain_loop(variant, device), 1, device)
    packs = {size: _rate(_pack(variant, device, size), size, device) for size in sizes}
    return {
        "variant": variant,
        "plain_pytorch_steps_per_second": round(peer),
        "packs": {
            size: {"lane_steps_per_second": round(rate), "times_plain": round(rate / peer, 1)}
            for size, rate in packs.items()
        },
    }


def _rate(advance: Callable[[int], object], n_lanes: int, device: str) -> float:
    """Lane-steps per second of a function that takes a number of steps."""
    advance(20)
    chunk, n_steps, started = 10, 0, time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        advance(chunk)
        n_steps += chunk
        if device == "cuda":
            torch.cuda.synchronize()
    return n_lanes * n_steps / (time.perf_counter() - started)


def _pack(variant: str, device: str, size: int) -> Callable[[int], object]:
    parameters = defaults(
        WORKLOAD, variant=variant, learning_rate=1e-3, init_sigma=0.05, n_steps=10**7, stop_when_solved=False
    )
    return Pack(WORKLOAD, [Training(parameters, seed) for seed in range(size)], device).advance


def _plain_loop(variant: str, device: str) -> Callable[[int], object]:
    module = WORKLOAD.build(defaults(WORKLOAD, variant=variant)).double().to(device)
    for value in (*module.parameters(), *module.buffers()):
        value.data.normal_(std=0.05)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    def advance(n_steps: int) -> None:
        for _ in range(n_steps):
            optimizer.zero_grad()
            WORKLOAD.loss(module, {}).backward()
            optimizer.step()

    return advance


if __name__ == "__main__":
    main()
