"""Compiles steps for CPUs: traced for one training, and written in C++. Importing this imports no compiler."""

from attnsweep.workloads.engine.executors import Executors


def executors_on(device: str, engine: str) -> Executors | None:
    """Returns what takes steps on a device; `None` if PyTorch does, operation by operation. On a GPU the steps of both
    engines are captured."""
    if device == "cuda":
        from attnsweep.workloads.engine.captured import Graphs

        return Graphs()
    if engine == "compiled":
        from attnsweep.workloads.engine.compiling.programs import Programs

        return Programs()
    return None
