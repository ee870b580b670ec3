"""Traces of functions as graphs."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from attnsweep.workloads.engine.compiling.traces import operations_of, traced


def _loss(x: Tensor) -> Tensor:
    return (x.softmax(-1).log() * x.tanh()).sum()


def test_threads_trace_one_after_the_other() -> None:
    """As of sweeps that run in threads of one process."""
    with ThreadPoolExecutor(4) as threads:
        graphs = list(threads.map(traced, [torch.func.grad(_loss)] * 12, [[torch.ones(3)]] * 12))
    assert len({len(operations_of(graph)) for graph in graphs}) == 1
