"""What a GPU would gain from steps that PyTorch's compiler merges, with the lanes last, as in blocks on a CPU.

Sweeps with `--engine merged` use such steps.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnsweep.workloads.engine.block_step import BATCH, LEARNING_RATE, NUMBER, has_lane_axis, step_inputs
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.layout import prefixed
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.programs import over_block
from shared.gpu_shapes import SHAPES, pack_of

_STEPS_A_REPLAY = 16


@dataclass
class MergedStep:
    """A step of all lanes of a pack, ready to be compiled.

    Attributes:
        graph: Updates `inputs` in place.
        inputs: (..., L) by name.
        updated: Names of those that a step changes.
    """

    graph: torch.fx.GraphModule
    inputs: State
    updated: tuple[str, ...]

    def lanes_of(self, name: str) -> Tensor:
        """An updated input, (L, ...)."""
        return self.inputs[name].squeeze(0).movedim(-1, 0)


def merged_step_of(pack: Pack[Any], step_number: int) -> MergedStep:
    """The step that a pack takes next."""
    optimizer, problem, batch = pack._optimizer, pack._problem, pack._batch_at(step_number)
    assert isinstance(optimizer, FirstOrder)
    own = step_inputs(optimizer, problem.layout, pack._rows, pack._buffers)
    step = problem.step_graph(optimizer, pack._rows, pack._buffers, batch)
    ((rate_L, numbers),) = optimizer.ahead(range(step_number, step_number + 1))
    read = own | prefixed(BATCH, batch) | prefixed(NUMBER, numbers) | {LEARNING_RATE: rate_L}
    inputs = {name: _lanes_last(name, read[name]).clone() for name in step.inputs}
    return MergedStep(over_block(step, list(inputs.values())), inputs, step.updated)


def _lanes_last(name: str, value: Tensor) -> Tensor:
    if name.startswith(NUMBER):
        return value.reshape(1)
    return (value.unsqueeze(1) if has_lane_axis(name) else value).movedim(0, -1).contiguous()


def rates_of_merged_steps(name: str, device: str, sizes: tuple[int, ...], until: float) -> dict[str, object]:
    """Lane-steps per second by pack size, the seconds until it could be run, and how far its first step is off.

    `differ` is the share of parameters whose first step differs from the vmapped one by over a thousandth of it.
    """
    found = dict[str, object]()
    for size in sizes:
        if time.monotonic() > until:
            found[str(size)] = "left out: the time was up"
            break
        started = time.perf_counter()
        pack = pack_of(SHAPES[name], size, device, "eager")
        pack.advance(4)
        step = merged_step_of(pack, 4)
        inputs = list(step.inputs.values())
        run = torch._inductor.compile(step.graph, inputs)
        before = {each: step.lanes_of(each).clone() for each in step.updated if each.startswith("parameter")}
        run(*inputs)
        after = {each: step.lanes_of(each).clone() for each in before}
        seconds = time.perf_counter() - started
        pack.advance(1)
        expected = pack._layout.views(pack._rows)
        n_off = sum(_n_off(before[each], after[each], expected[each.partition("/")[2]]) for each in before)
        found[str(size)] = {
            "lane_steps_per_second": round(_rate(run, inputs, size, device)),
            "seconds_to_build": round(seconds, 1),
            "differ": n_off / pack._rows.numel(),
        }
    return found


def _n_off(before: Tensor, after: Tensor, expected: Tensor) -> int:
    after, before = after.reshape(expected.shape), before.reshape(expected.shape)
    return int(((after - expected).abs() > 1e-3 * (expected - before).abs() + 1e-15).sum())


def _rate(run: object, inputs: list[Tensor], size: int, device: str, seconds: float = 1.0) -> float:
    assert callable(run)
    if not device.startswith("cuda"):
        started = time.perf_counter()
        run(*inputs)
        return size / (time.perf_counter() - started)
    for _ in range(3):
        run(*inputs)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_STEPS_A_REPLAY):
            run(*inputs)
    started, n_steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        graph.replay()
        torch.cuda.synchronize(device)
        n_steps += _STEPS_A_REPLAY
    return size * n_steps / (time.perf_counter() - started)
