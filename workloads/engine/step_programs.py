"""What takes a pack's steps in the place of the vmapped engine: graphs on a GPU, compiled blocks on a CPU."""

from attnsweep.workloads.engine.blocks import StepPrograms
from attnsweep.workloads.engine.graphs import Graphs
from attnsweep.workloads.engine.programs import merged
from attnsweep.workloads.engine.shape_programs import Programs


def step_programs(device: str, engine: str) -> StepPrograms | None:
    """The programs of a trainer on this device; `None` if it launches each operation of a step from Python.

    Args:
        device: `cpu` or `cuda`.
        engine: `blocks` compiles steps on a CPU for blocks of lanes, `merged` steps on a GPU for whole packs; on the
            other device both are `vmapped`.
    """
    if device == "cuda":
        return Graphs(compiler=merged if engine == "merged" else None)
    return Programs() if engine == "blocks" else None
