"""The fused engine on a GPU: speed by pack size, several processes against one pack, bits, outcomes against the CPU's.

    python benchmarks/gpu.py [--device cuda] [--seconds 420] [--parts replays rates ...] [--out benchmarks/gpu.json]
    python benchmarks/gpu.py --predict --out benchmarks/gpu_predictions.json

Needs torch, numpy and pyarrow only. It stops where its time is up, and says what it left out. Beside each rate stands
what a simple model predicts; `gpu_predictions.json` was committed before any run on a GPU, so that the first run tests
the model. A step launches a number of kernels that hardly depends on the pack's size. Launched from Python, each takes
8 us, and from a CUDA graph 2.5 us, until the GPU is busy with moving their numbers. Both counts are taken from a step
on the CPU.
"""

import argparse
import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from shared.gpu_bits import (
    bits_by_neighbours,
    graphs_are_eager,
    outcomes_agree,
    replays_in_the_recorded_width,
    whole_trainings_by_neighbours,
)
from shared.gpu_compiled import rates_of_merged_steps
from shared.gpu_shapes import SHAPES, Shape, pack_of, unprobed, ways
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnsweep.workloads.engine.device_memory import CudaMemory, MemoryOfPacks, peak_of
from attnsweep.workloads.engine.graphs import Graphs
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.translation import Translation

LAUNCH_SECONDS = {"eager": 8e-6, "graphs": 2.5e-6}
"""Time of a kernel launched from Python (torch's dispatch, autograd and vmap), and from a CUDA graph."""
BYTES_PER_SECOND = 3.0e12
"""Memory bandwidth of an H100 (HBM3), as reached by elementwise kernels."""
SIZES = (64, 1024, 4096, 16384)
PARTS = (
    *("whole_trainings", "replays", "rates", "outcomes", "bits"),
    *("head_scores", "processes", "graphs_are_eager", "memory", "merged"),
)
MERGED = ("system P, float64", "system C, float64", "FIRST, lengths 10 to 300")
"""Shapes whose steps the compiler can merge."""
MOST_LANES = {"eager": 4096, "graphs": 16384}
"""Of packs that are launched in this way, where there are two: building a large pack takes longer than measuring it."""


@dataclass
class Model:
    """What a step of a pack costs a GPU.

    Attributes:
        kernels: Launched in a step.
        bytes_of_a_lane: Read and written by them, for one training.
    """

    kernels: float
    bytes_of_a_lane: float

    def predicted(self, size: int, how: str) -> float:
        """Lane-steps per second of a pack of this size, launched in one of the ways of `LAUNCH_SECONDS`."""
        return size / max(self.kernels * LAUNCH_SECONDS[how], size * self.bytes_of_a_lane / BYTES_PER_SECOND)


class _Counting(TorchDispatchMode):
    """Counts operations that are no views, and the bytes of what they read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns):
            self.kernels += 1
            tensors = (each for each in tree_leaves((args, kwargs, found)) if isinstance(each, torch.Tensor))
            self.bytes += sum(each.numel() * each.element_size() for each in tensors)
        return found


def model_of(shape: Shape, size: int = 8, n_steps: int = 4) -> Model:
    """Counts a few steps of a small pack on the CPU."""
    pack = pack_of(shape, size, "cpu", "eager")
    pack.advance(4)
    with _Counting() as counted:
        pack.advance(n_steps)
    return Model(counted.kernels / n_steps, counted.bytes / n_steps / size)


def main() -> None:
    """Measures what fits into the time and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--predict", action="store_true", help="predict only")
    options = parser.parse_args()
    if options.predict:
        _write({"benchmark": "gpu", "predictions": {name: predictions(name) for name in SHAPES}}, options.out)
        return
    until = time.monotonic() + options.seconds
    parts = parts_on(options.device, until)
    found = dict[str, object](
        benchmark="gpu",
        device=torch.cuda.get_device_name(options.device) if _is_cuda(options.device) else options.device,
        torch=torch.__version__,
    )
    for part in options.parts:
        found[part] = {name: _in_time(until, measure) for name, measure in parts[part].items()}
    _write(found, options.out)


def parts_on(device: str, until: float) -> dict[str, dict[str, Callable[[], object]]]:
    """What is measured, by part and name. What no GPU has shown yet comes first, in case that time is up."""
    new, old = "translation, float32", [name for name in SHAPES if name != "translation, float32"]
    on_cuda: dict[str, dict[str, Callable[[], object]]] = {
        "graphs_are_eager": {"all": partial(graphs_are_eager, device)},
        "memory": {name: partial(memory_of, name, device) for name in SHAPES},
        "merged": {name: partial(rates_of_merged_steps, name, device, (1024, 16384), until) for name in MERGED},
    }
    return {
        "whole_trainings": {"all": partial(whole_trainings_by_neighbours, device)},
        "replays": {"all": partial(replays_in_the_recorded_width, device)},
        "rates": {
            f"{name}, {how}": partial(rates, name, how, device, until)
            for name in (new, *old)
            for how in reversed(ways(name))
        },
        "outcomes": {"all": partial(outcomes_agree, device)},
        "bits": {"all": partial(bits_by_neighbours, device)},
        "head_scores": {"all": partial(seconds_of_head_scores, device)},
        "processes": {"all": partial(processes_against_one, device)},
        **(on_cuda if _is_cuda(device) else {name: {} for name in on_cuda}),
    }


def _is_cuda(device: str) -> bool:
    return device.startswith("cuda")


def _write(found: dict[str, object], out: Path | None) -> None:
    text = json.dumps(found, indent=2)
    if out is not None:
        out.write_text(text + "\n")
    print(text)


def predictions(name: str) -> dict[str, object]:
    """The model of a shape, and the lane-steps per second that it predicts by pack size."""
    model = model_of(SHAPES[name])
    rate = {how: {str(size): round(model.predicted(size, how)) for size in (1, *SIZES)} for how in ways(name)}
    return {
        "kernels_a_step": round(model.kernels),
        "bytes_of_a_lane_step": round(model.bytes_of_a_lane),
        "lane_steps_per_second": rate,
    }


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


def rates(name: str, how: str, device: str, until: float) -> dict[str, object]:
    """Lane-steps per second by pack size, beside the prediction; from the size on that does not fit, the reason."""
    shape, found = SHAPES[name], dict[str, object]()
    if how == "graphs" and not _is_cuda(device):
        return {"left out": "needs CUDA"}
    model = model_of(shape)
    most = MOST_LANES[how] if len(ways(name)) > 1 else max(SIZES)
    for size in (1, *(each for each in SIZES if each <= most)):
        if time.monotonic() > until:
            found[str(size)] = "left out: the time was up"
            break
        try:
            rate, peak, build_seconds = _rate(shape, size, device, how)
        except torch.OutOfMemoryError:
            found[str(size)] = "out of memory"
            break
        found[str(size)] = {
            "lane_steps_per_second": round(rate),
            "build_seconds": round(build_seconds, 2),
            "predicted": round(model.predicted(size, how)),
            "peak_mib": peak,
        }
    return found


def _rate(
    shape: Shape, size: int, device: str, how: str = "eager", seconds: float = 2.0
) -> tuple[float, int | None, float]:
    """Lane-steps per second, MiB of the device's memory, and seconds until the pack had taken its first steps."""
    if _is_cuda(device):
        torch.cuda.reset_peak_memory_stats(device)
    built = time.perf_counter()
    pack = pack_of(shape, size, device, how)
    pack.advance(4)
    _wait(device)
    build_seconds = time.perf_counter() - built
    started, n_steps = time.perf_counter(), 0
    while n_steps + 4 < shape.most_steps and time.perf_counter() - started < seconds:
        pack.advance(4)
        n_steps += 4
        _wait(device)
    rate = size * n_steps / (time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated(device) // 2**20 if _is_cuda(device) else None
    return rate, peak, build_seconds


def _wait(device: str) -> None:
    if _is_cuda(device):
        torch.cuda.synchronize(device)


def seconds_of_head_scores(device: str, size: int = 256) -> dict[str, object]:
    """Seconds of one look at the heads of some translators, beside those of their first 32 steps."""
    settings = {"n_steps": 10**7, "test_sentences": 4, "eval_sentences": 8, "head_sentences": 200}
    trainings = Shape(Translation(), [settings]).trainings(size)
    pack = Pack(unprobed(Translation()), trainings, device, programs=Graphs() if _is_cuda(device) else None)
    looked = time.perf_counter()
    pack.advance(0)
    pack.advance(17)
    _wait(device)
    trained = time.perf_counter()
    pack.advance(32)
    _wait(device)
    return {
        "trainings": size,
        "seconds_until_step_17": round(trained - looked, 2),
        "seconds_of_32_steps": round(time.perf_counter() - trained, 2),
    }


def memory_of(name: str, device: str, size: int = 4096) -> dict[str, object]:
    """MiB of a large pack beside what two small ones predict, and the largest pack that they predict to fit."""
    memory = CudaMemory(device)

    def train(n_lanes: int) -> None:
        pack_of(SHAPES[name], n_lanes, device, "eager").advance(4)

    model = MemoryOfPacks.measured(train, memory)
    try:
        peak: object = peak_of(memory, partial(train, size)) // 2**20
    except torch.OutOfMemoryError:
        peak = "out of memory"
    most = model.most_lanes(memory.free())
    return {"lanes": size, "peak_mib": peak, "predicted_mib": round(model.peak(size) / 2**20), "most_lanes": most}


def processes_against_one(device: str, n_processes: int = 4) -> dict[str, float]:
    """Lane-steps per second of system P: several processes with a pack each, and one pack of all their trainings."""
    size = SIZES[1]
    with multiprocessing.get_context("spawn").Pool(n_processes) as pool:
        several = sum(pool.starmap(_rate_of_p, [(size, device)] * n_processes))
    return {"processes": n_processes, "several": round(several), "one": round(_rate_of_p(n_processes * size, device))}


def _rate_of_p(size: int, device: str) -> float:
    return _rate(SHAPES["system P, float64"], size, device, seconds=10.0)[0]


if __name__ == "__main__":
    main()
