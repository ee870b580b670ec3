"""Borrowed models: packs of 64 trainings against one training alone in a plain PyTorch loop.

    python benchmarks/modules.py [--models nanogpt encoder ...] [--widths 16 32] [--lanes 64]
        [--engines vmapped blocks] [--rounds 3] [--dropout 0.0] [--out benchmarks/modules.json]

The models are those of docs/examples/borrowed.py: two layers, two heads, 16 sequences of 15 tokens, Adam,
float32. The vmapped engine, compiled blocks and the plain loop, which has PyTorch's own kernels and its own
dropout, take turns; one thread, CPU seconds. Needs a C++ compiler, and transformers and transformer-lens for the last
three.
"""

from pathlib import Path
from typing import Any

import torch
from harness import chosen, main, step_seconds
from shared.shapes import ENDLESS, Shape, plain_loop

from attnsweep.workloads.engine.executors.programs import Programs
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.registry import load_workload

MODELS = ("nanogpt", "encoder", "gpt2", "llama", "transformer_lens")
ENGINES = ("vmapped", "blocks")
FILE = Path(__file__).parents[1] / "docs" / "examples" / "borrowed.py"


def measure(
    *,
    models: tuple[str, ...] = MODELS,
    widths: tuple[int, ...] = (16, 32),
    engines: tuple[str, ...] = ENGINES,
    lanes: int = 64,
    rounds: int = 3,
    dropout: float = 0.0,
) -> dict[str, Any]:
    """Measures all models."""
    with training_settings():
        rows = [
            _row({"model": model, "width": width, "dropout": dropout}, chosen(ENGINES, engines), lanes, rounds)
            for model in chosen(MODELS, models)
            for width in widths
        ]
    return {"lanes": lanes, "rows": rows}


def _row(case: dict[str, Any], engines: list[str], lanes: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of a step of one training."""
    others = ENDLESS | {"dtype": "float32", "init_sigma": None, "optimizer": "adam"}
    shape = Shape(load_workload(f"{FILE}:Borrowed"), [others | case])
    packs = {name: shape.pack(lanes, programs=Programs() if name == "blocks" else None) for name in engines}
    # The plain loop draws from the global generator, if it drops.
    torch.manual_seed(0)
    seconds = step_seconds({"plain": plain_loop(shape), **{name: pack.advance for name, pack in packs.items()}}, rounds)
    plain = seconds.pop("plain")
    return {
        **case,
        "plain_ms": round(1e3 * plain, 2),
        "ms_of_a_lane": {name: round(1e3 * each / lanes, 3) for name, each in seconds.items()},
        "times_plain": {name: round(lanes * plain / each, 1) for name, each in seconds.items()},
    }


if __name__ == "__main__":
    main(measure)
