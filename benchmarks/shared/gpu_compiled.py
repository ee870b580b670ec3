"""What a GPU gains from steps that PyTorch's compiler merges, with the lanes last: those of `--engine merged`."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.engine.block_step import BATCH, LEARNING_RATE, NUMBER
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.lane_memory import Bucket
from attnsweep.workloads.engine.lane_steps import Compiler, MergedPrograms, MergedStep
from attnsweep.workloads.engine.layout import prefixed
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.programs import merged
from shared.gpu_shapes import SHAPES, Shape, pack_of

_STEPS_A_REPLAY = 16
_FIRST_STEPS = 4


@dataclass
class Comparison:
    """A merged step of all lanes of a pack, taken once.

    Attributes:
        take: Takes it again, on the same memory.
        seconds_to_build: Until it had been taken once.
        differ: The share of parameters whose step differs from the vmapped one by over a thousandth of it.
    """

    take: Callable[[], None]
    seconds_to_build: float
    differ: float


def rates_of_merged_steps(name: str, device: str, sizes: tuple[int, ...], until: float) -> dict[str, object]:
    """Lane-steps per second by pack size, the seconds until a step could be taken, and how far it is off."""
    found = dict[str, object]()
    for size in sizes:
        if time.monotonic() > until:
            found[str(size)] = "left out: the time was up"
            break
        step = compared(SHAPES[name], size, device, merged)
        found[str(size)] = {
            "lane_steps_per_second": round(_rate(step.take, size, device)),
            "seconds_to_build": round(step.seconds_to_build, 1),
            "differ": step.differ,
        }
    return found


def compared(shape: Shape, size: int, device: str, compiler: Compiler) -> Comparison:
    """The merged step of a pack of this size beside the vmapped one, from the same state."""
    started = time.perf_counter()
    pack = pack_of(shape, size, device, "eager")
    pack.advance(_FIRST_STEPS)
    optimizer, problem, rows = pack._optimizer, pack._problem, pack._rows
    assert isinstance(optimizer, FirstOrder)
    batch = pack._batch_at(_FIRST_STEPS)
    ((rate_L, numbers),) = optimizer.ahead(range(_FIRST_STEPS, _FIRST_STEPS + 1))
    read: State = {LEARNING_RATE: rate_L, **prefixed(NUMBER, numbers), **prefixed(BATCH, batch)}
    bucket = Bucket(size, optimizer, rows, pack._buffers)
    programs = MergedPrograms(problem.step_graph(optimizer, rows, pack._buffers, batch), compiler)
    step = MergedStep(programs, problem.layout)
    step.load(bucket)
    step.take(bucket, read)
    step.store(bucket)
    before = rows.clone()
    seconds = time.perf_counter() - started
    pack.advance(1)
    differ = _n_off(before, bucket.rows, pack._rows) / rows.numel()
    return Comparison(lambda: step.take(bucket, read), seconds, differ)


def _n_off(before: Tensor, after: Tensor, expected: Tensor) -> int:
    return int(((after - expected).abs() > 1e-3 * (expected - before).abs() + 1e-15).sum())


def _rate(take: Callable[[], None], size: int, device: str, seconds: float = 1.0) -> float:
    for _ in range(3):
        take()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_STEPS_A_REPLAY):
            take()
    started, n_steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        graph.replay()
        torch.cuda.synchronize(device)
        n_steps += _STEPS_A_REPLAY
    return size * n_steps / (time.perf_counter() - started)
