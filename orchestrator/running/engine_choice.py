"""Which engine takes the steps of a new sweep, from its beginning to its end."""

from math import ceil, prod
from typing import Any, Literal

from rich.console import Console

from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.training.error_text import STOPS
from attnsweep.search_spaces.dimensions import Categorical, Int
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.programs import NoCompilerError, block_engine

_WORTH_A_COMPILE = 50e9
"""Numbers that all trainings of one shape compute, from which on compiling pays. The vmapped engine takes about 1 ns
each, so 50 s of CPU. Compiling takes 7 to 26 s, once per machine, and blocks a tenth (system P) to three quarters (a
two-layer encoder) of the 50 s (benchmarks/RESULTS.md)."""
_MOST_NUMBERS = 1e6
"""More than the step of any shape in blocks computes, so that the step of a short sweep need not be traced."""


def engine_for(spec: Sweep, workload: Workload[Any], wanted: Engine | Literal["auto"], console: Console) -> Engine:
    """The engine of a new sweep. It depends on the spec, the workload and whether this machine can compile.

    Args:
        spec: The sweep.
        workload: Its workload.
        wanted: `auto` for the faster one.
        console: Told where `blocks` would be faster but this machine cannot compile.
    """
    if wanted != "auto":
        return wanted
    n_steps = steps_of_a_shape(spec, workload)
    if n_steps * _MOST_NUMBERS < _WORTH_A_COMPILE or n_steps * _numbers_of_a_step(spec, workload) < _WORTH_A_COMPILE:
        return "vmapped"
    try:
        block_engine()
    except NoCompilerError as error:
        console.print(f"this sweep would train several times faster in compiled blocks, but {error}")
        return "vmapped"
    return "blocks"


def steps_of_a_shape(spec: Sweep, workload: Workload[Any]) -> int:
    """The most steps that all trainings of one shape take, if the shapes of a sweep are equally frequent."""
    declared = workload.parameters.declared()
    n_shapes = prod(
        len(dimension.grid()) if isinstance(dimension, Categorical) else dimension.high - dimension.low + 1
        for name, dimension in spec.varied().items()
        if declared[name].static and isinstance(dimension, Categorical | Int)
    )
    trainings = spec.trials * most_wanted(spec.replicates)
    n_steps: int = _a_training(spec, workload).n_steps
    return ceil(trainings / n_shapes) * n_steps


def _numbers_of_a_step(spec: Sweep, workload: Workload[Any]) -> int:
    """How many numbers a step computes in a sweep's first shape; 0 if it cannot be computed for a block."""
    try:
        return Pack(workload, [Training(_a_training(spec, workload), 0)]).step_graph().n_numbers
    except STOPS:
        raise
    except BaseException:  # noqa: BLE001  # What a training raises becomes its outcome, once it is trained.
        return 0


def _a_training(spec: Sweep, workload: Workload[Any]) -> Any:
    """The parameters of a training in the corner of a sweep's space where each parameter has its first value."""
    corner = {name: dimension.grid()[0] for name, dimension in spec.varied().items()}
    return workload.parameters.resolve({**spec.fixed(), **corner})
