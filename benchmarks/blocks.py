"""CPU time of a training's step: compiled blocks against the vmapped engine, at the best pack size of each.

    python benchmarks/blocks.py [--rounds 3] [--sizes 64 256] [--shapes "system P" ...] [--out benchmarks/blocks.json]

One thread, as in a trainer. The two engines take turns, and CPU seconds are counted, so that other programs disturb
little. `compile_seconds` is CPU time too, of this process and the compiler it starts, with an empty cache; a machine
pays it once per shape. `microseconds_at_limit` is what the arithmetic of the traced step takes alone
(`shared/step_limit.py`). Needs torch, numpy, pyarrow and a C++ compiler.
"""

import os
import statistics
import tempfile
from typing import Any

import torch
from harness import chosen, main, step_seconds, timed
from shared.shapes import SHAPES, Shape
from shared.step_limit import microseconds_at_limit

from attnsweep.workloads.engine.compiling.libraries import block_engine
from attnsweep.workloads.engine.compiling.step_graph import StepGraph
from attnsweep.workloads.engine.executors.programs import Programs
from attnsweep.workloads.engine.pack import Pack

NAMES = (
    *("system P, float64", "system P, Adam, float32", "system C, float64", "solution 3, Adam, float64"),
    *("FIRST, lengths 10 to 300", "PARITY, two layers", "a user's two-layer attention, Adam, float32"),
)


def measure(*, rounds: int = 3, sizes: tuple[int, ...] = (64, 256), shapes: tuple[str, ...] = NAMES) -> dict[str, Any]:
    """Measures all shapes."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        rows = [_row(name, sizes, rounds) for name in chosen(NAMES, shapes)]
    return {"engine": block_engine(), "rows": rows}


def _row(name: str, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Microseconds of CPU that a lane's step takes, by engine and pack size, and their ratio at each one's best."""
    shape, programs = SHAPES[name], Programs()
    compile_seconds = timed(lambda: shape.pack(2, programs=programs).advance(2))
    engines = {"blocks": programs, "vmapped": None}
    packs = {(engine, size): shape.pack(size, programs=engines[engine]) for engine in engines for size in sizes}
    seconds = step_seconds({key: pack.advance for key, pack in packs.items()}, rounds)
    taken = {engine: {size: 1e6 * seconds[engine, size] / size for size in sizes} for engine in engines}
    return {
        "shape": name,
        "microseconds": {engine: {size: round(each, 2) for size, each in taken[engine].items()} for engine in taken},
        "times_vmapped": round(min(taken["vmapped"].values()) / min(taken["blocks"].values()), 1),
        "microseconds_at_limit": _at_limit(shape),
        "compile_seconds": round(compile_seconds, 1),
    }


def _at_limit(shape: Shape) -> float | None:
    """The mean of the settings; `None` where only the gradient is compiled."""
    trainings = shape.trainings(len(shape.settings))
    graphs = [Pack(shape.workload, [each]).compiled_graph() for each in trainings]
    limits = [
        microseconds_at_limit(graph.graph, getattr(torch, each.parameters.dtype))
        for graph, each in zip(graphs, trainings, strict=True)
        if isinstance(graph, StepGraph)
    ]
    return round(statistics.mean(limits), 2) if limits else None


if __name__ == "__main__":
    main(measure)
