"""Training steps per second: packs against one training alone in a plain PyTorch loop.

    python benchmarks/fusion.py [--device cpu|cuda] [--shapes "system P" addition ...] [--sizes 1 16 64 256 1024]
        [--rounds 3] [--out benchmarks/fusion.json]

`--shapes` takes the beginnings of names: systems P and C of `category_pairs`, and a causal block of four heads (d = 24,
AdamW, float32) that adds modulo 17, some of the 289 pairs or all of them in a step. The vmapped engine and the loop
take turns; one thread and CPU seconds on the CPU. Needs torch, numpy and pyarrow only.
"""

import platform
from typing import Any

import torch
from harness import chosen, main, step_seconds
from shared.shapes import SHAPES, clock_of, plain_loop

NAMES = ("system P, float64", "system C, float64", *(name for name in SHAPES if name.startswith("addition")))


def measure(
    *,
    device: str = "cpu",
    shapes: tuple[str, ...] = NAMES,
    sizes: tuple[int, ...] = (1, 16, 64, 256, 1024),
    rounds: int = 3,
) -> dict[str, Any]:
    """Measures all shapes."""
    torch.set_num_threads(1)
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {"device": name, "rows": [_row(each, device, sizes, rounds) for each in chosen(NAMES, shapes)]}


def _row(name: str, device: str, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Steps of the plain loop, and lane-steps of packs by size."""
    shape = SHAPES[name]
    advances = {size: shape.pack(size, device).advance for size in sizes}
    seconds = step_seconds({0: plain_loop(shape, device), **advances}, rounds, clock=clock_of(device))
    plain = seconds.pop(0)
    return {
        "shape": name,
        "plain_steps_per_second": round(1 / plain),
        "lane_steps_per_second": {size: round(size / each) for size, each in seconds.items()},
        "milliseconds": {"plain": round(1e3 * plain, 3)}
        | {str(size): round(1e3 * each / size, 3) for size, each in seconds.items()},
        "times_plain": {size: round(size * plain / each, 1) for size, each in seconds.items()},
    }


if __name__ == "__main__":
    main(measure)
