"""The share of a training's CPU time that its probes take.

    python benchmarks/probes.py [--shapes 'solution 3' ...] [--out benchmarks/probes.json]

One thread, as in a trainer, and CPU seconds, so that other programs disturb little. A probe measures losses, the norm
of the gradient, the workload's measures and the scores of heads. Packs are trained from start to end; building them and
compiling are not counted. Needs torch, numpy and pyarrow, and a C++ compiler for blocks.
"""

from typing import Any

from harness import chosen, cpu_seconds, main, timed
from shared.shapes import LANGUAGES, PAIRS, Shape

from attnsweep.workloads.engine.executors.programs import Programs
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.translation import Translation

FULL: dict[str, Any] = {"expectation": "fixed_sample", "dtype": "float32", "optimizer": "lbfgs", "learning_rate": 1.0}
TESTS: dict[str, Any] = {"eval_batch_size": 32, "test_batch_size": 100, "longest_test_length": 1000}
STRINGS: dict[str, Any] = {"n_epochs": 6, "steps_per_epoch": 100, "test_ladder": False, "stop_when_solved": False}
FIGURE_4 = Shape(
    LANGUAGES,
    [
        {"language": "first", "train_length": length, "attention_scale": scale, **STRINGS, **TESTS}
        for length in (10, 30, 100, 300)
        for scale in ("inv_sqrt_d", "log_n_query_inv_sqrt_d")
    ],
)
QUICKSTART = Shape(
    PAIRS,
    [
        {"variant": "positions_only", "n_steps": 3000, "init_sigma": 10.0**sigma, "learning_rate": 10.0**rate}
        for sigma in (-4, -3, -2, -1, 0)
        for rate in (-4, -3, -2)
    ],
)
SOLUTION_1 = [FULL | {"variant": "solution_1", "n_steps": 250, "init_sigma": sigma} for sigma in (0.01, 0.1, 0.3)]
SOLUTION_3 = FULL | {"variant": "solution_3", "n_positions": 50, "batch_size": 1000, "n_steps": 50, "init_sigma": None}
CASES: dict[str, tuple[Shape, int, bool]] = {
    "solution 3, 1000 texts, 50 iterations": (Shape(PAIRS, [SOLUTION_3]), 16, False),
    "solution 1 of stuck_full, 256 texts, 250 iterations": (Shape(PAIRS, SOLUTION_1), 16, False),
    "Figure 4, vmapped": (FIGURE_4, 80, False),
    "Figure 4, blocks": (FIGURE_4, 80, True),
    "quickstart, vmapped": (QUICKSTART, 256, False),
    "quickstart, blocks": (QUICKSTART, 256, True),
    "translation, 2 passes, 3 probes": (Shape(Translation(), [{"n_probes": 3}]), 8, False),
}
"""The trainings, lanes, and whether they are trained in blocks."""


class TimedPack(Pack[Any]):
    """Counts the CPU seconds of its probes."""

    probe_seconds = 0.0

    def _record_probe(self) -> None:
        self.probe_seconds += timed(super()._record_probe)


def measure(*, shapes: tuple[str, ...] = tuple(CASES)) -> dict[str, Any]:
    """Measures the shapes."""
    with training_settings():
        return {"rows": [_row(name) for name in chosen(CASES, shapes)]}


def _row(name: str) -> dict[str, Any]:
    """CPU seconds of a pack and of its probes."""
    shape, n_lanes, in_blocks = CASES[name]
    trainings, programs = shape.trainings(n_lanes), Programs() if in_blocks else None
    # Compiles, and prepares what a process keeps, such as a corpus.
    TimedPack(shape.workload, trainings[:2], programs=programs).advance(2)
    pack = TimedPack(shape.workload, trainings, programs=programs)
    began = cpu_seconds()
    pack.train_to_end()
    seconds = cpu_seconds() - began
    return {
        "shape": name,
        "lanes": n_lanes,
        "probes": len(pack.result().evidence.steps),
        "cpu_seconds": round(seconds, 2),
        "probe_seconds": round(pack.probe_seconds, 2),
        "share": round(pack.probe_seconds / seconds, 3),
    }


if __name__ == "__main__":
    main(measure)
