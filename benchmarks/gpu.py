"""The fused engine on a GPU: speed by pack size, several processes against one pack, bits, outcomes against the CPU's.

    python benchmarks/gpu.py [--device cuda] [--seconds 420] [--parts graphs rates ...] [--out benchmarks/gpu.json]

Needs torch, numpy and pyarrow only. It stops where its time is up, and says what it left out. With `--device cpu` the
parts that need CUDA are left out, only to see that the others run.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

import torch
from harness import chosen, main
from shared.shapes import GPU_SHAPES, LANGUAGES, PAIRS, SHAPES, Shape, clock_of, unprobed

from attnsweep.workloads.engine.compiling import executors_on
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.executors import Executors
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.lane_state import width_on
from attnsweep.workloads.engine.pack import Pack

SEARCHED = {"expectation": "fixed_sample", "batch_size": 50, "optimizer": "lbfgs", "n_steps": 60}
"""Whole trainings by L-BFGS that end at different times."""
WHOLE_STRINGS = {
    **{"language": "first", "train_length": 30, "longest_test_length": 50, "n_epochs": 3, "steps_per_epoch": 20},
    **{"eval_batch_size": 4, "test_batch_size": 4},
}
WHOLE: dict[str, tuple[Workload[Any], dict[str, Any], int]] = {
    "system P, Adam": (PAIRS, {"variant": "positions_only", "optimizer": "adam", "n_steps": 1000}, 150),
    "FIRST": (LANGUAGES, WHOLE_STRINGS, 150),
    "solution 3, L-BFGS, float32": (PAIRS, SEARCHED | {"variant": "solution_3", "dtype": "float32"}, 150),
    "solution 1, L-BFGS, float64": (PAIRS, SEARCHED | {"variant": "solution_1", "dtype": "float64"}, 50),
}
"""Whole trainings whose bits are compared: workload, parameters, and how many share a pack."""


@cache
def programs_of(device: str, how: str) -> Executors | None:
    """What takes a pack's steps: `graphs` replays captured steps, as trainers do; `eager` launches each operation."""
    return None if how == "eager" else executors_on(device.partition(":")[0], "eager")


def outcomes_agree(device: str, size: int = 128) -> dict[str, object]:
    """Whole trainings of system P on the device and on the CPU: how many end with the same outcome."""
    settings = [
        {"variant": "positions_only", "n_steps": 2000, "learning_rate": rate, "init_sigma": sigma}
        for rate in (1e-3, 1e-2, 5e-2)
        for sigma in (1e-3, 1e-2, 1e-1, 1.0)
    ]
    trainings, ends = Shape(PAIRS, settings).trainings(size), []
    for each in (device, "cpu"):
        result = Pack(PAIRS, trainings, each).train_to_end()
        ends.append(result.at_last_probe(judged(PAIRS, trainings[0].parameters, result.evidence).outcome))
    return {"trainings": size, "equal": int((ends[0] == ends[1]).sum())}


def graphs_are_eager(device: str, size: int = 64, n_steps: int = 100) -> dict[str, bool]:
    """Whether a pack's rows are the same, to the last bit, with graphs and without."""
    found = {}
    for name in GPU_SHAPES:
        if not SHAPES[name].is_searched:
            packs = [SHAPES[name].pack(size, device, programs=programs_of(device, how)) for how in ("eager", "graphs")]
            for pack in packs:
                pack.advance(n_steps)
            eager, graphed = (pack.checkpoint()["rows"].tobytes() for pack in packs)
            found[name] = eager == graphed
    return found


def bits_by_neighbours(
    device: str, names: Sequence[str] = GPU_SHAPES, how: str = "graphs", width: int = 64, n_steps: int = 40
) -> dict[str, object]:
    """Whether a training alone in a pack of some width has the bits that it has among others, first or last.

    `equal_if_narrow`: whether it also has those bits alone in a pack that is only as wide as its trainings need.
    """
    found: dict[str, object] = {}
    for name in names:
        one, *others = SHAPES[name].trainings(width)
        packs = [([one], width), ([one, *others], width), ([*others[1:], one], width), ([one], None)]
        alone, first, moved, narrow = (_rows(SHAPES[name], device, how, n_steps, *each) for each in packs)
        found[name] = {
            "equal": bool((alone[0] == first[0]).all() and (alone[0] == moved[-1]).all()),
            "equal_if_narrow": bool((alone[0] == narrow[0]).all()),
        }
    return found


def _rows(shape: Shape, device: str, how: str, n_steps: int, trainings: list[Training[Any]], width: int | None) -> Any:
    """The parameters (L, n) of a pack after some steps."""
    programs = programs_of(device, "eager" if shape.is_searched else how)
    pack = Pack(unprobed(shape.workload), trainings, device, programs=programs, width=width)
    pack.advance(n_steps)
    return pack.checkpoint()["rows"]


def whole_trainings_by_neighbours(
    device: str,
    names: Sequence[str] = tuple(WHOLE),
    how: str = "graphs",
    n_compared: int = 4,
    max_trainings: int = 150,
    **changed: Any,
) -> dict[str, object]:
    """How many whole trainings have the same losses, to the last bit, among others that end earlier and alone.

    Alone they are in a pack as wide as that in which they were among others, as `attnsweep replay` trains them.

    Args:
        device, how: As `programs_of` takes them.
        names: Among `WHOLE`.
        n_compared: How many are trained alone.
        max_trainings: Bounds the number that share a pack.
        changed: Replace values in the parameters of all.
    """
    found = dict[str, object]()
    for name in names:
        workload, case, size = WHOLE[name]
        size = min(size, max_trainings)
        rates, sigmas, width = (1.0, 0.01, 0.1), (0.3, 0.01, 0.1, 1.0), width_on("cuda", size)
        settings = [case | {"learning_rate": rate, "init_sigma": sigma} | changed for rate in rates for sigma in sigmas]
        trainings = Shape(workload, settings).trainings(size)

        def losses(some: list[Training[Any]], workload: Workload[Any] = workload, width: int | None = width) -> Any:
            pack = Pack(workload, some, device, programs=programs_of(device, how), width=width)
            return pack.train_to_end().evidence.metrics["loss"]

        in_pack = losses(trainings)
        equal = sum(losses([trainings[lane]])[0].tobytes() == in_pack[lane].tobytes() for lane in range(n_compared))
        found[name] = {"compared": n_compared, "equal": equal, "width": width}
    return found


SIZES = (1, 64, 1024, 4096, 16384)
FIRST_STEPS, STEPS_A_REPLAY = 4, 16
PARTS = ("whole_trainings", "graphs", "rates", "outcomes", "bits", "graphs_are_eager")


def measure(*, device: str = "cuda", seconds: float = 420.0, parts: tuple[str, ...] = PARTS) -> dict[str, Any]:
    """Measures the parts in turn; what has not begun after `seconds` is left out."""
    until = time.monotonic() + seconds
    measured = parts_on(device)
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(device) if _is_cuda(device) else device}
    for part in chosen(PARTS, parts):
        found[part] = {name: _in_time(until, call) for name, call in measured[part].items()}
    return found


def parts_on(device: str) -> dict[str, dict[str, Callable[[], object]]]:
    """What is measured, by part and name."""

    def rates(names: Iterable[str], how: str, sizes: Iterable[int]) -> dict[str, Callable[[], object]]:
        return {f"{name}, {how}, {n}": partial(rate, name, n, device, how) for name in names for n in sizes}

    searched = "solution 3, L-BFGS, float64"
    with_graph = [name for name in GPU_SHAPES if name != searched]
    on_cuda: dict[str, dict[str, Callable[[], object]]] = {
        "graphs": rates(with_graph, "graphs", SIZES),
        "graphs_are_eager": {"all": partial(graphs_are_eager, device)},
    }
    return {
        "whole_trainings": {"all": partial(whole_trainings_by_neighbours, device)},
        "rates": rates(with_graph, "eager", SIZES[:-1]) | rates([searched], "eager", SIZES),
        "outcomes": {"all": partial(outcomes_agree, device)},
        "bits": {"all": partial(bits_by_neighbours, device)},
        **(on_cuda if _is_cuda(device) else {name: {} for name in on_cuda}),
    }


def _is_cuda(device: str) -> bool:
    return device.startswith("cuda")


def _in_time(until: float, measure: Callable[[], object]) -> object:
    """What was measured. A measurement that fails leaves its reason, and the others their figures."""
    if time.monotonic() > until:
        return "left out: the time was up"
    started = time.monotonic()
    try:
        found = measure()
    except Exception as error:  # noqa: BLE001 - a device fails in ways that no list holds
        traceback.print_exc()
        found = f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    print(f"{time.monotonic() - started:.1f} s: {measure}: {json.dumps(found)}", file=sys.stderr, flush=True)
    return found


def rate(name: str, size: int, device: str, how: str = "eager", seconds: float = 2.0) -> dict[str, Any]:
    """Lane-steps per second, seconds until the pack had taken its first steps, and MiB of the device's memory."""
    shape, clock = SHAPES[name], clock_of(device)
    if _is_cuda(device):
        torch.cuda.reset_peak_memory_stats(device)
    began = clock()
    pack = shape.pack(size, device, programs=programs_of(device, how))
    steps_a_turn = 4 if shape.is_searched else STEPS_A_REPLAY
    for n_steps in (FIRST_STEPS, steps_a_turn):
        pack.advance(n_steps)
    started, n_steps = clock(), 0
    while n_steps + steps_a_turn < shape.most_steps and clock() - started < seconds:
        pack.advance(steps_a_turn)
        n_steps += steps_a_turn
    return {
        "lane_steps_per_second": round(size * n_steps / (clock() - started)),
        "build_seconds": round(started - began, 2),
        "peak_mib": torch.cuda.max_memory_allocated(device) // 2**20 if _is_cuda(device) else None,
    }


if __name__ == "__main__":
    main(measure)
