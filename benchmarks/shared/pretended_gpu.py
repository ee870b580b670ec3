"""The pretended device of the tests in place of this process's GPU, for rehearsals."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from attnsweep.orchestrator.training import trainer
from attnsweep.workloads.engine.executors.graphs import Graphs
from shared import gpu_bits


class PretendedMemory:
    """Of a GPU with room for every pack."""

    def begin(self) -> None:
        """Counts nothing."""

    def peak(self) -> int:
        return 2**20

    def free(self) -> int:
        return 2**40


def pretended_gpu() -> str:
    """The device's name; from now on trainers of this process find graphs, a compiler and memory there."""
    sys.path.append(str(Path(__file__).parents[2]))
    from tests.workloads.engine.recorded_graph import RecordedGraph
    from tests.workloads.pretend_device import pretend_device

    def executors_on(device: str, engine: str) -> Graphs:
        del device
        return Graphs(RecordedGraph, 4, _as_it_is if engine == "merged" else None)

    for module, name, stand_in in (
        (trainer, "executors_on", executors_on),
        (trainer, "memory_of", lambda _: PretendedMemory()),
        (gpu_bits, "executors_on", executors_on),
    ):
        setattr(module, name, stand_in)
    return pretend_device()


def _as_it_is(graph: torch.fx.GraphModule, examples: Sequence[torch.Tensor]) -> Callable[..., object]:
    del examples
    return graph
