"""What the matrix products of a translator's step take alone: the most that merging everything else can gain.

    python benchmarks/products.py [--sizes 16 64] [--rounds 5] [--out FILE.json]

One thread, as in a trainer, the vmapped engine. The products of some steps are noted, and then computed again without
anything between them, on other numbers of the same shapes and strides. Steps and products take turns, and CPU seconds
are counted, so that other programs disturb little. `times_at_most` is the time of a step over that of its products;
`times_at_full_rate` is it if the products ran at the rate of a large one. Needs torch, numpy and pyarrow.
"""

import argparse
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation

STEPS = 12
"""Steps of a round: batches of most lengths."""
LARGE = 2048
Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides of a batch of matrices."""


def main() -> None:
    """Measures packs of all sizes and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report = {
        "benchmark": "products",
        "load": round(os.getloadavg()[0], 1),
        "rows": [training_settings()(measure)(size, options.rounds) for size in options.sizes],
    }
    text = json.dumps(report, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def measure(size: int, rounds: int) -> dict[str, object]:
    """Milliseconds of CPU that a lane's step and its products take, in a pack of so many translators."""
    translation = Translation()
    pack = Pack(translation, [Training(defaults(translation), seed) for seed in range(size)])
    pack.advance(3)
    with Products() as products:
        pack.advance(STEPS)
    again = products.again()
    large = torch.randn(LARGE, LARGE)
    timed: dict[str, Callable[[], object]] = {
        "step": lambda: pack.advance(STEPS),
        "products": lambda: _multiply(again),
        "large": lambda: large @ large,
    }
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(1 + rounds):
        for name, function in timed.items():
            seconds[name].append(_cpu_seconds(function))
    step, product, of_large = (statistics.median(seconds[name][1:]) for name in timed)
    operations = sum(2 * times * a.numel() * b.shape[2] for a, b, times in again)
    full_rate = 2 * LARGE**3 / of_large
    return {
        "size": size,
        "step_ms": round(1e3 * step / STEPS / size, 2),
        "products_ms": round(1e3 * product / STEPS / size, 2),
        "products_gflops": round(operations / product / 1e9),
        "large_product_gflops": round(full_rate / 1e9),
        "times_at_most": round(step / product, 2),
        "times_at_full_rate": round(step * full_rate / operations, 2),
    }


class Products(TorchDispatchMode):
    """Notes the batched products of matrices that are computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._noted: Counter[tuple[Layout, Layout]] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.bmm.default:
            a, b = ((tuple(each.shape), each.stride()) for each in args)
            self._noted[a, b] += 1
        return function(*args, **(kwargs or {}))

    def again(self) -> list[tuple[Tensor, Tensor, int]]:
        """Other factors like those noted, and how often each pair was multiplied."""
        return [(_drawn(a), _drawn(b), times) for (a, b), times in self._noted.items()]


def _multiply(factors: Sequence[tuple[Tensor, Tensor, int]]) -> None:
    for a, b, times in factors:
        for _ in range(times):
            torch.bmm(a, b)  # Kept, the results would cost new memory each.


def _drawn(layout: Layout) -> Tensor:
    shape, strides = layout
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return torch.randn(extent).as_strided(shape, strides)


def _cpu_seconds(function: Callable[[], object]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


if __name__ == "__main__":
    main()
