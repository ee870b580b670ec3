"""What takes a pack's steps in the place of the vmapped engine: graphs on a GPU, compiled blocks on a CPU."""

from attnsweep.workloads.engine.blocks import StepPrograms
from attnsweep.workloads.engine.graphs import Graphs
from attnsweep.workloads.engine.shape_programs import Programs


def step_programs(device: str, *, blocks: bool) -> StepPrograms | None:
    """The programs of a trainer on this device; `None` if it launches each operation of a step from Python.

    Args:
        device: `cpu` or `cuda`.
        blocks: Whether steps on a CPU are compiled for blocks of lanes.
    """
    if device == "cuda":
        return Graphs()
    return Programs() if blocks else None
