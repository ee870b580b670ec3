"""Chooses the executors that replace the vmapped engine: CUDA graphs on a GPU, compiled blocks on a CPU."""

from attnsweep.workloads.engine.compiling.libraries import merged
from attnsweep.workloads.engine.executors.executor import Executors
from attnsweep.workloads.engine.executors.graphs import Graphs
from attnsweep.workloads.engine.executors.programs import Programs


def executors_on(device: str, engine: str) -> Executors | None:
    """Returns the executors that a trainer uses on this device; `None` if Python runs each step's operations.

    Args:
        device: `cpu` or `cuda`.
        engine: `blocks` compiles steps on a CPU for blocks of lanes, `merged` steps on a GPU for whole packs; on the
            other device both are `vmapped`.
    """
    if device == "cuda":
        return Graphs(compiler=merged if engine == "merged" else None)
    return Programs() if engine == "blocks" else None
