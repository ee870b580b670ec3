"""Compiles steps for CPUs: traced for one training, and written in C++."""

from attnsweep.workloads.engine.executors import Executors


def executors_on(device: str, engine: str) -> Executors | None:
    """`None` if PyTorch takes steps, operation by operation. On a GPU the steps of both engines are captured."""
    if device == "cuda":
        from attnsweep.workloads.engine.captured import Graphs

        return Graphs()
    if engine == "compiled":
        from attnsweep.workloads.engine.compiling.programs import Programs

        return Programs()
    return None
