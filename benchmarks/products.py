"""What the matrix products of a lane's step take alone: the most that merging everything else can gain.

    python benchmarks/products.py [--shapes translation FIRST] [--sizes 16 64] [--rounds 5] [--out FILE.json]

One thread, as in a trainer, the vmapped engine. The products of some steps are noted, and then computed again without
anything between them, on other numbers of the same shapes and strides. Steps and products take turns, and CPU seconds
are counted, so that other programs disturb little. `times_at_most` is the time of a step over that of its products;
`times_at_full_rate` is it if the products ran at the rate of a large one, and `share_of_full_rate` the rate at which
the whole step computes them. From packs of two sizes follows what a step costs whatever its lanes, and each lane's own.
Needs torch, numpy and pyarrow.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from harness import chosen, in_turns, main
from shared.shapes import SHAPES, Shape
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.translation import Translation

STEPS = 12
"""Steps of a round: batches of most lengths."""
LARGE = 2048
CASES = {
    "translation": Shape(Translation(), [{"n_steps": 10**7}]),
    "FIRST, lengths 10 to 300": SHAPES["FIRST, lengths 10 to 300"],
}
Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides of a batch of matrices."""


def measure(
    *, shapes: tuple[str, ...] = ("translation",), sizes: tuple[int, ...] = (16, 64), rounds: int = 5
) -> dict[str, Any]:
    """Measures packs of all sizes."""
    with training_settings():
        rows = [_row(name, size, rounds) for name in chosen(CASES, shapes) for size in sizes]
    for few, many in pairwise(rows):
        if few["shape"] == many["shape"]:
            of_pack = {row["lanes"]: row["step_us"] * row["lanes"] for row in (few, many)}
            of_lane = (of_pack[many["lanes"]] - of_pack[few["lanes"]]) / (many["lanes"] - few["lanes"])
            many["us_of_each_lane"] = round(of_lane, 1)
            many["us_whatever_the_lanes"] = round(of_pack[few["lanes"]] - few["lanes"] * of_lane, 1)
    return {"rows": rows}


def _row(name: str, size: int, rounds: int) -> dict[str, Any]:
    """Microseconds of CPU that a lane's step and its products take, in a pack of so many."""
    pack = CASES[name].pack(size)
    pack.advance(3)
    with Products() as products:
        pack.advance(STEPS)
    again = products.again()
    large = torch.randn(LARGE, LARGE)
    seconds = in_turns(
        {
            "step": lambda: pack.advance(STEPS),
            "products": lambda: _multiply(again),
            "large": lambda: large @ large,
        },
        rounds,
    )
    step, product = seconds["step"], seconds["products"]
    operations = sum(2 * times * a.numel() * b.shape[2] for a, b, times in again)
    full_rate = 2 * LARGE**3 / seconds["large"]
    return {
        "shape": name,
        "lanes": size,
        "step_us": round(1e6 * step / STEPS / size, 2),
        "products_us": round(1e6 * product / STEPS / size, 2),
        "operations_of_products": round(operations / STEPS / size),
        "products_gflops": round(operations / product / 1e9),
        "large_product_gflops": round(full_rate / 1e9),
        "times_at_most": round(step / product, 2),
        "times_at_full_rate": round(step * full_rate / operations, 2),
        "share_of_full_rate": round(operations / step / full_rate, 3),
    }


class Products(TorchDispatchMode):
    """Notes the products of matrices that are computed."""

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


if __name__ == "__main__":
    main(measure)
