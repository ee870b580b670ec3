"""The fused engine on a GPU: speed by pack size, several processes against one pack, bits, outcomes against the CPU's.

    python benchmarks/gpu.py [--device cuda] [--seconds 420] [--out benchmarks/gpu.json]
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
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.device_memory import CudaMemory, MemoryOfPacks
from attnsweep.workloads.engine.graphs import Graphs
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation

LAUNCH_SECONDS = {"eager": 8e-6, "graphs": 2.5e-6}
"""Time of a kernel launched from Python (torch's dispatch, autograd and vmap), and from a CUDA graph."""
BYTES_PER_SECOND = 3.0e12
"""Memory bandwidth of an H100 (HBM3), as reached by elementwise kernels."""
SIZES = (64, 1024, 4096, 16384)
MOST_LANES = {"eager": 4096, "graphs": 16384}
"""Of packs that are launched in this way, where there are two: building a large pack takes longer than measuring it."""
ENDLESS: dict[str, Any] = {"n_steps": 10**7, "stop_when_solved": False, "learning_rate": 1e-3, "init_sigma": 0.05}
STRINGS: dict[str, Any] = {"n_epochs": 4, "steps_per_epoch": 2048, "eval_batch_size": 1, "test_batch_size": 1}


@dataclass(frozen=True)
class Shape:
    """One shape to measure.

    Attributes:
        workload: Its problem.
        settings: Parameters of its trainings, in turn.
        most_steps: The steps that all its trainings take before the first may end.
    """

    workload: Workload[Any]
    settings: list[dict[str, Any]]
    most_steps: int = 10**6

    def trainings(self, size: int) -> list[Training[Any]]:
        """So many trainings."""
        return [
            Training(defaults(self.workload, **each), seed)
            for seed, each in enumerate(islice(cycle(self.settings), size))
        ]


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
    pack = _pack(shape, size, "cpu", "eager")
    pack.advance(4)
    with _Counting() as counted:
        pack.advance(n_steps)
    return Model(counted.kernels / n_steps, counted.bytes / n_steps / size)


def unprobed(workload: Workload[Any]) -> Workload[Any]:
    """The same problem, probed at both ends only: its steps are measured."""

    class Unprobed(type(workload)):  # type: ignore[misc]
        def probe_steps(self, parameters: TrainingParameters) -> tuple[int, ...]:
            return 0, parameters.n_steps

    found: Workload[Any] = Unprobed()
    return found


PAIRS = CategoryPairs()
SHAPES = {
    "system P, float64": Shape(PAIRS, [ENDLESS | {"variant": "positions_only"}]),
    "system C, float64": Shape(PAIRS, [ENDLESS | {"variant": "categories_only"}]),
    "FIRST, lengths 10 to 300": Shape(
        FormalLanguages(),
        [
            STRINGS | {"language": "first", "train_length": n, "test_ladder": False, "stop_when_solved": False}
            for n in (10, 30, 100, 300)
        ],
    ),
    "solution 3, L-BFGS, float64": Shape(
        PAIRS,
        [
            {"variant": "solution_3", "expectation": "fixed_sample", "batch_size": 50, "optimizer": "lbfgs"}
            | {"n_steps": 10**6, "stop_when_solved": False}
        ],
        most_steps=36,
    ),
    "translation, float32": Shape(
        Translation(),
        [{"n_sentences": 200, "eval_sentences": 8, "head_sentences": 0, "test_sentences": 4, "n_steps": 10**7}],
    ),
}


def main() -> None:
    """Measures what fits into the time and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--predict", action="store_true", help="predict only")
    options = parser.parse_args()
    if options.predict:
        _write({"benchmark": "gpu", "predictions": {name: predictions(name) for name in SHAPES}}, options.out)
        return
    until = time.monotonic() + options.seconds
    is_cuda = options.device.startswith("cuda")
    found = {
        "benchmark": "gpu",
        "device": torch.cuda.get_device_name(options.device) if is_cuda else options.device,
        "torch": torch.__version__,
        "outcomes": _in_time(until, lambda: outcomes_agree(options.device)),
        "bits": _in_time(until, lambda: bits_by_neighbours(options.device)),
        "whole_trainings": _in_time(until, lambda: whole_trainings_by_neighbours(options.device)),
        "graphs_are_eager": _in_time(until, lambda: graphs_are_eager(options.device)) if is_cuda else "needs CUDA",
        "memory": {name: _in_time(until, partial(memory_of, name, options.device)) for name in SHAPES}
        if is_cuda
        else "needs CUDA",
        "head_scores": _in_time(until, lambda: seconds_of_head_scores(options.device)),
        "processes": _in_time(until, lambda: processes_against_one(options.device)),
        "rates": {
            name: {how: _in_time(until, partial(rates, name, how, options.device, until)) for how in ways(name)}
            for name in SHAPES
        },
    }
    _write(found, options.out)


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


def ways(name: str) -> list[str]:
    """How a shape's kernels can be launched. Steps that search along lines differ, so they have no graph."""
    searches = any(each.get("optimizer") == "lbfgs" for each in SHAPES[name].settings)
    return ["eager"] if searches else list(LAUNCH_SECONDS)


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
    if how == "graphs" and not device.startswith("cuda"):
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


def _pack(shape: Shape, size: int, device: str, how: str) -> Pack[Any]:
    return Pack(unprobed(shape.workload), shape.trainings(size), device, programs=Graphs() if how == "graphs" else None)


def _rate(
    shape: Shape, size: int, device: str, how: str = "eager", seconds: float = 2.0
) -> tuple[float, int | None, float]:
    """Lane-steps per second, MiB of the device's memory, and seconds until the pack had taken its first steps."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
    built = time.perf_counter()
    pack = _pack(shape, size, device, how)
    pack.advance(4)
    _wait(device)
    build_seconds = time.perf_counter() - built
    started, n_steps = time.perf_counter(), 0
    while n_steps + 4 < shape.most_steps and time.perf_counter() - started < seconds:
        pack.advance(4)
        n_steps += 4
        _wait(device)
    rate = size * n_steps / (time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated(device) // 2**20 if device.startswith("cuda") else None
    return rate, peak, build_seconds


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def bits_by_neighbours(device: str, width: int = 64, n_steps: int = 40) -> dict[str, object]:
    """Whether a training is the same to the last bit first in a pack, moved within it, and alone in a pack as wide.

    Beside it, whether it is so in a pack that is as wide as it has trainings, where it is alone.
    """
    found: dict[str, object] = {}
    for name, shape in SHAPES.items():
        one, *others = shape.trainings(width)
        packs = [([one], width), ([one, *others], width), ([*others[1:], one], width), ([one], None)]
        alone, first, moved, narrow = (_rows(shape, trainings, device, each, n_steps) for trainings, each in packs)
        found[name] = {
            "equal": bool((alone[0] == first[0]).all() and (alone[0] == moved[-1]).all()),
            "equal_if_narrow": bool((alone[0] == narrow[0]).all()),
        }
    return found


def _rows(shape: Shape, trainings: list[Training[Any]], device: str, width: int | None, n_steps: int) -> Any:
    """The parameters (L, n) of a pack after some steps."""
    is_searched = any(each.get("optimizer") == "lbfgs" for each in shape.settings)
    graphs = Graphs() if device.startswith("cuda") and not is_searched else None
    pack = Pack(unprobed(shape.workload), trainings, device, programs=graphs, width=width)
    pack.advance(n_steps)
    return pack.checkpoint()["rows"]


def whole_trainings_by_neighbours(device: str, size: int = 50, n_compared: int = 4) -> dict[str, object]:
    """How many whole trainings have the same losses, to the last bit, among others that end earlier and alone."""
    searched = {"expectation": "fixed_sample", "batch_size": 50, "optimizer": "lbfgs", "n_steps": 60}
    cases: dict[str, dict[str, Any]] = {
        "system P, Adam": {"variant": "positions_only", "optimizer": "adam", "n_steps": 1000, "learning_rate": 0.02},
        "solution 3, L-BFGS, float32": searched | {"variant": "solution_3", "dtype": "float32"},
        "solution 1, L-BFGS, float64": searched | {"variant": "solution_1", "dtype": "float64"},
    }
    found: dict[str, object] = {}
    for name, settings in cases.items():
        trainings = Shape(PAIRS, [settings | {"init_sigma": sigma} for sigma in (0.3, 0.01, 0.1, 1.0)]).trainings(size)
        together = _losses(trainings, device)
        alone = [_losses([trainings[lane]], device)[0] for lane in range(n_compared)]
        equal = sum(each.tobytes() == together[lane].tobytes() for lane, each in enumerate(alone))
        found[name] = {"compared": n_compared, "equal": equal}
    return found


def _losses(trainings: list[Training[Any]], device: str) -> Any:
    """(L, P) losses of whole trainings of category pairs, at all probes."""
    graphs = Graphs() if device.startswith("cuda") else None
    pack = Pack(PAIRS, trainings, device, programs=graphs, width=64)
    while not pack.advance(1000):
        pass
    return pack.result().evidence.metrics["loss"]


def seconds_of_head_scores(device: str, size: int = 256) -> dict[str, object]:
    """Seconds of one look at the heads of some translators, beside those of their first 32 steps."""
    settings = {"n_steps": 10**7, "test_sentences": 4, "eval_sentences": 8, "head_sentences": 200}
    trainings = Shape(Translation(), [settings]).trainings(size)
    pack = Pack(unprobed(Translation()), trainings, device, programs=Graphs() if device.startswith("cuda") else None)
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


def graphs_are_eager(device: str, size: int = 64, n_steps: int = 100) -> dict[str, bool]:
    """Whether a pack's checkpoint is the same, to the last bit, with graphs and without."""
    found = {}
    for name in SHAPES:
        if "graphs" in ways(name):
            packs = [_pack(SHAPES[name], size, device, how) for how in ("eager", "graphs")]
            for pack in packs:
                pack.advance(n_steps)
            eager, graphed = (pack.checkpoint()["rows"].tobytes() for pack in packs)
            found[name] = eager == graphed
    return found


def memory_of(name: str, device: str, size: int = 4096) -> dict[str, object]:
    """MiB of a large pack beside what two small ones predict, and the largest pack that they predict to fit."""
    memory = CudaMemory(device)

    def train(n_lanes: int) -> None:
        _pack(SHAPES[name], n_lanes, device, "eager").advance(4)

    model = MemoryOfPacks.measured(train, memory)
    try:
        peak: object = memory.peak_of(partial(train, size)) // 2**20
    except torch.OutOfMemoryError:
        peak = "out of memory"
    most = model.most_lanes(memory.free())
    return {"lanes": size, "peak_mib": peak, "predicted_mib": round(model.peak(size) / 2**20), "most_lanes": most}


def outcomes_agree(device: str, size: int = 128) -> dict[str, object]:
    """Whole trainings of system P on the device and on the CPU: how many end with the same outcome."""
    settings = [
        {"variant": "positions_only", "n_steps": 2000, "learning_rate": rate, "init_sigma": sigma}
        for rate in (1e-3, 1e-2, 5e-2)
        for sigma in (1e-3, 1e-2, 1e-1, 1.0)
    ]
    shape = Shape(PAIRS, settings)
    ends = []
    for each in (device, "cpu"):
        pack = Pack(PAIRS, shape.trainings(size), each)
        while not pack.advance(1000):
            pass
        result = pack.result()
        ends.append(result.at_last_probe(judged(PAIRS, shape.trainings(1)[0].parameters, result.evidence).outcome))
    return {"trainings": size, "equal": int((ends[0] == ends[1]).sum())}


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
