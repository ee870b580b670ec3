"""The share of a training's CPU time that its probes take.

    python benchmarks/probes.py [--shapes 'solution 3' ...] [--out benchmarks/probes.json]

One thread, as in a trainer, and CPU seconds, so that other programs disturb little. A probe measures losses, the norm
of the gradient, the workload's measures and the scores of heads. Packs are trained from start to end; building them and
compiling are not counted. Needs torch, numpy and pyarrow, and a C++ compiler for blocks.
"""

import argparse
import json
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.engine.shape_programs import Programs
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation

PAIRS, LANGUAGES, TRANSLATION = CategoryPairs(), FormalLanguages(), Translation()
Settings = list[dict[str, Value]]
FULL: dict[str, Value] = {"expectation": "fixed_sample", "dtype": "float32", "optimizer": "lbfgs", "learning_rate": 1.0}
FIGURE_4: Settings = [
    {
        "language": "first",
        "train_length": length,
        "attention_scale": scale,
        "n_epochs": 6,
        "steps_per_epoch": 100,
        "eval_batch_size": 32,
        "test_batch_size": 100,
        "longest_test_length": 1000,
        "test_ladder": False,
        "stop_when_solved": False,
    }
    for length in (10, 30, 100, 300)
    for scale in ("inv_sqrt_d", "log_n_query_inv_sqrt_d")
]
QUICKSTART: Settings = [
    {"variant": "positions_only", "n_steps": 3000, "init_sigma": 10.0**sigma, "learning_rate": 10.0**rate}
    for sigma in (-4, -3, -2, -1, 0)
    for rate in (-4, -3, -2)
]
SHAPES: dict[str, tuple[Workload[Any], Settings, int, bool]] = {
    "solution 3, 1000 texts, 50 iterations": (
        PAIRS,
        [FULL | {"variant": "solution_3", "n_positions": 50, "batch_size": 1000, "n_steps": 50, "init_sigma": None}],
        16,
        False,
    ),
    "solution 1 of stuck_full, 256 texts, 250 iterations": (
        PAIRS,
        [FULL | {"variant": "solution_1", "n_steps": 250, "init_sigma": sigma} for sigma in (0.01, 0.1, 0.3)],
        16,
        False,
    ),
    "Figure 4, vmapped": (LANGUAGES, FIGURE_4, 80, False),
    "Figure 4, blocks": (LANGUAGES, FIGURE_4, 80, True),
    "quickstart, vmapped": (PAIRS, QUICKSTART, 256, False),
    "quickstart, blocks": (PAIRS, QUICKSTART, 256, True),
    "translation, 2 passes, 3 probes": (TRANSLATION, [{"n_probes": 3}], 8, False),
}
"""The workload, the settings of its trainings in turn, lanes, and whether they are trained in blocks."""


class TimedPack(Pack[Any]):
    """Counts the CPU seconds of its probes."""

    probe_seconds = 0.0

    def _record_probe(self) -> None:
        started = time.process_time()
        super()._record_probe()
        self.probe_seconds += time.process_time() - started


def main() -> None:
    """Measures the shapes and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), help="beginnings of their names")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with training_settings():
        rows = [measure(name) for name in SHAPES if name.startswith(tuple(options.shapes))]
    text = json.dumps({"benchmark": "probes", "rows": rows}, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def measure(name: str) -> dict[str, object]:
    """CPU seconds of a pack and of its probes."""
    workload, settings, n_lanes, in_blocks = SHAPES[name]
    trainings = [
        Training(defaults(workload, **each), seed) for seed, each in enumerate(islice(cycle(settings), n_lanes))
    ]
    programs = Programs() if in_blocks else None
    # Compiles, and prepares what a process keeps, such as a corpus.
    TimedPack(workload, trainings[:2], programs=programs).advance(2)
    pack = TimedPack(workload, trainings, programs=programs)
    started = time.process_time()
    while not pack.advance(1_000):
        pass
    seconds = time.process_time() - started
    return {
        "shape": name,
        "lanes": n_lanes,
        "probes": len(pack.result().evidence.steps),
        "cpu_seconds": round(seconds, 2),
        "probe_seconds": round(pack.probe_seconds, 2),
        "share": round(pack.probe_seconds / seconds, 3),
    }


if __name__ == "__main__":
    main()
