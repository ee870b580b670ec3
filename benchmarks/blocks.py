"""CPU time of a training's step: compiled blocks against the vmapped engine, at the best pack size of each.

    python benchmarks/blocks.py [--rounds 3] [--sizes 64 256] [--shapes "system P" ...] [--out benchmarks/blocks.json]

One thread, as in a trainer. The two engines take turns, and CPU seconds are counted, so that other programs disturb
little. `compile_seconds` is CPU time too, of this process and the compiler it starts, with an empty cache; a machine
pays it once per shape.

`microseconds_at_limit` is what the arithmetic of the traced step takes alone: its operations at the rates of this
processor's registers. Nothing is read, written, moved, compared or chosen, no operation waits for another, and an
exponential counts as one multiplication. A program that is faster leaves out operations of the trace, such as those
whose result another operation has. Needs torch, numpy, pyarrow and a C++ compiler.
"""

import ctypes
import os
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from harness import chosen, main, step_seconds, timed
from shared.shapes import SHAPES, Shape
from torch import Tensor, fx

from attnsweep.workloads.engine.compiling.libraries import block_engine
from attnsweep.workloads.engine.compiling.step_graph import StepGraph
from attnsweep.workloads.engine.compiling.traces import multiplications_of, operations_of
from attnsweep.workloads.engine.executors.programs import Programs
from attnsweep.workloads.engine.pack import Pack

_ARITHMETIC = {"add", "sub", "mul", "pow", "exp", "log"}
_SUMS = {"sum", "mean", "var"}
_KINDS = {"div": "divisions", "reciprocal": "divisions", "sqrt": "roots", "rsqrt": "roots"}
_ROUNDS = 20_000_000
_BITS = 256

_KERNEL = """
typedef {type} lanes __attribute__((vector_size({bytes})));
static inline lanes root(lanes x) {{
    for (int i = 0; i < {n}; i++) x[i] = __builtin_sqrt{suffix}(x[i]);
    return x;
}}
extern "C" {type} run(long rounds, {type} by) {{
    lanes x[8], y = by + (lanes){{}};
    for (int i = 0; i < 8; i++) x[i] = y + ({type})i;
    for (long k = 0; k < rounds; k++)
        for (int i = 0; i < 8; i++) {{ asm volatile("" : "+x"(x[i])); x[i] = {operation}; }}
    for (int i = 1; i < 8; i++) x[0] += x[i];
    return x[0][0];
}}
"""
_OPERATIONS = {"multiplications": ("x[i] * y + y", 2), "divisions": ("y / x[i]", 1), "roots": ("root(x[i])", 1)}


def microseconds_at_limit(graph: fx.GraphModule, dtype: torch.dtype) -> float:
    """Of a step of one training, in a block of trainings that fills the registers."""
    rates = _rates(dtype)
    return 1e6 * sum(count / rates[kind] for kind, count in _counts(graph).items())


def _counts(graph: fx.GraphModule) -> Mapping[str, int]:
    """How many numbers of a step each kind of operation computes; a sum takes an addition for each that it adds."""
    counts = Counter({"multiplications": 2 * multiplications_of(graph)})
    for node in operations_of(graph):
        name, value = str(node.target).split(".")[1], node.meta.get("val")
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        read: Any = node.args[0]
        if name in _SUMS:
            counts["multiplications"] += read.meta["val"].numel()
        elif name in _ARITHMETIC or name in _KINDS:
            counts[_KINDS.get(name, "multiplications")] += value.numel()
    return counts


@cache
def _rates(dtype: torch.dtype) -> Mapping[str, float]:
    """Numbers a second of one core, by the kind of operation, without fused multiply-add: the best of three runs."""
    n = _BITS // torch.finfo(dtype).bits
    words = {"type": "double", "suffix": ""} if dtype == torch.float64 else {"type": "float", "suffix": "f"}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, (operation, n_operations) in _OPERATIONS.items():
            source, library = Path(folder, f"{kind}.cpp"), Path(folder, f"{kind}.so")
            source.write_text(_KERNEL.format(operation=operation, n=n, bytes=_BITS // 8, **words))
            options = ["-O3", "-mavx2", "-mno-fma", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC"]
            subprocess.run(["c++", *options, source, "-o", library], check=True)
            run = ctypes.CDLL(str(library)).run
            run.argtypes = [ctypes.c_long, ctypes.c_double if words["type"] == "double" else ctypes.c_float]
            run.restype = run.argtypes[1]
            rounds = _ROUNDS if kind == "multiplications" else _ROUNDS // 8
            seconds = min(timed(lambda run=run, rounds=rounds: run(rounds, 1.0)) for _ in range(3))  # type: ignore[misc]
            found[kind] = rounds * 8 * n * n_operations / seconds
    return found


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
