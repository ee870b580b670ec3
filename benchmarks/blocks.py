"""CPU time of a training's step: compiled blocks against the vmapped engine, at the best pack size of each.

    python benchmarks/blocks.py [--rounds 3] [--shapes "system P" ...] [--out benchmarks/blocks.json]

One thread, as in a trainer. The two engines take turns, and CPU seconds are counted, so that other programs disturb
little. `compile_seconds` is CPU time too, of this process and the compiler it starts, with an empty cache; a machine
pays it once per shape. `microseconds_at_limit` is what the arithmetic of the traced step takes alone
(`shared/step_limit.py`). Needs torch, numpy, pyarrow and a C++ compiler.
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from shared.step_limit import microseconds_at_limit
from two_layer_attention import NextToken

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.block_step import StepGraph
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.programs import block_engine
from attnsweep.workloads.engine.shape_programs import Programs
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.testing import defaults

ENDLESS: dict[str, Any] = {"n_steps": 10**7, "stop_when_solved": False, "learning_rate": 1e-3, "init_sigma": 0.05}
STRINGS: dict[str, Any] = {"n_epochs": 4, "steps_per_epoch": 2048, "eval_batch_size": 1, "test_batch_size": 1}
LENGTHS = (10, 30, 100, 300)
PAIRS, LANGUAGES = CategoryPairs(), FormalLanguages()
SHAPES: dict[str, tuple[Workload[Any], list[dict[str, Any]]]] = {
    "system P, gradient descent, float64": (PAIRS, [ENDLESS | {"variant": "positions_only"}]),
    "system P, Adam, float32": (
        PAIRS,
        [ENDLESS | {"variant": "positions_only", "optimizer": "adam", "dtype": "float32"}],
    ),
    "system C, gradient descent, float64": (PAIRS, [ENDLESS | {"variant": "categories_only"}]),
    "solution 3, Adam, float64": (
        PAIRS,
        [ENDLESS | {"variant": "solution_3", "expectation": "fixed_sample", "batch_size": 60, "optimizer": "adam"}],
    ),
    "FIRST, lengths 10 to 300": (
        LANGUAGES,
        [
            STRINGS | {"language": "first", "train_length": length, "test_ladder": False, "stop_when_solved": False}
            for length in LENGTHS
        ],
    ),
    "PARITY, two layers": (
        LANGUAGES,
        [STRINGS | {"language": "parity", "n_layers": 2, "test_ladder": False, "stop_when_solved": False}],
    ),
    "a user's two-layer attention, Adam, float32": (NextToken(), [ENDLESS]),
}
SIZES = (64, 256)
WARM_UP, SECONDS = 30, 1.0


def main() -> None:
    """Measures all shapes and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), help="beginnings of their names")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        rows = [measure(name, options.rounds) for name in SHAPES if name.startswith(tuple(options.shapes))]
    text = json.dumps({"benchmark": "blocks", "engine": block_engine(), "rows": rows}, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def measure(name: str, rounds: int) -> dict[str, object]:
    """Microseconds of CPU that a lane's step takes, by engine and pack size, and their ratio at each one's best."""
    programs = Programs()
    before = _cpu_seconds()
    _pack(name, 2, programs).advance(2)
    compile_seconds = _cpu_seconds() - before
    packs = {
        (engine, size): _pack(name, size, each)
        for engine, each in (("blocks", programs), ("vmapped", None))
        for size in SIZES
    }
    for pack in packs.values():
        pack.advance(WARM_UP)
    steps = {key: _steps_per_round(pack.advance) for key, pack in packs.items()}
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in packs}
    for _ in range(rounds):
        for key, pack in packs.items():
            seconds[key].append(_timed(pack.advance, steps[key]) / steps[key] / key[1])
    microseconds = {key: 1e6 * statistics.median(each) for key, each in seconds.items()}
    best = {engine: min(microseconds[engine, size] for size in SIZES) for engine in ("blocks", "vmapped")}
    return {
        "shape": name,
        "microseconds": {engine: {size: round(microseconds[engine, size], 2) for size in SIZES} for engine in best},
        "times_vmapped": round(best["vmapped"] / best["blocks"], 1),
        "microseconds_at_limit": _at_limit(name),
        "compile_seconds": round(compile_seconds, 1),
    }


def _pack(name: str, size: int, programs: Programs | None) -> Pack[Any]:
    workload, settings = SHAPES[name]
    trainings = [Training(defaults(workload, **each), seed) for seed, each in enumerate(islice(cycle(settings), size))]
    return Pack(workload, trainings, programs=programs)


def _at_limit(name: str) -> float | None:
    """The mean of the shapes; `None` where only the gradient is compiled."""
    workload, settings = SHAPES[name]
    trainings = [Training(defaults(workload, **each), 0) for each in settings]
    graphs = [Pack(workload, [each]).compiled_graph() for each in trainings]
    limits = [
        microseconds_at_limit(graph.graph, getattr(torch, each.parameters.dtype))
        for graph, each in zip(graphs, trainings, strict=True)
        if isinstance(graph, StepGraph)
    ]
    return round(statistics.mean(limits), 2) if limits else None


def _steps_per_round(advance: Callable[[int], object]) -> int:
    n_steps = 4
    while (taken := _timed(advance, n_steps)) < SECONDS / 4:
        n_steps *= 2
    return max(1, int(n_steps * SECONDS / taken))


def _timed(advance: Callable[[int], object], n_steps: int) -> float:
    started = _cpu_seconds()
    advance(n_steps)
    return _cpu_seconds() - started


def _cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
