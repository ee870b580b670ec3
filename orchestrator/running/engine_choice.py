"""Which engine takes the steps of a new sweep, from its beginning to its end."""

import threading
from contextlib import suppress
from math import ceil, prod
from typing import Any, Literal

from rich.console import Console

from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.training.error_text import STOPS
from attnsweep.search_spaces.dimensions import Categorical, Int
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.blocks import Programs
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.programs import NoCompilerError, block_engine

_SECONDS_A_NUMBER = 1e-9
"""What the vmapped engine takes for each number that a step computes. Blocks take a tenth (system P) to a third
(a user's attention) of it (benchmarks/RESULTS.md)."""
_SECONDS_TO_COMPILE, _SECONDS_AN_OPERATION = 10.0, 0.02
"""Of CPU, once per machine: 12 s for the 108 operations of a step of system P, 33 s for the 1,125 of the encoder."""
_MARGIN = 2.0
"""How often all trainings of one shape have to repay a compile, since several trainers wait for it."""
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
    if not _pays(spec, workload):
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


def compile_ahead(spec: Sweep, workload: Workload[Any]) -> None:
    """Compiles the program of a sweep's first shape while Ray starts; trainers that need it sooner wait for it."""

    def compile_first() -> None:
        # Whatever keeps it from being compiled, the first trainer meets it too, and says so.
        with suppress(BaseException):
            Pack(workload, [Training(_a_training(spec, workload), 0)], programs=Programs()).compile()

    threading.Thread(target=compile_first, name="compile-ahead", daemon=True).start()


def _pays(spec: Sweep, workload: Workload[Any]) -> bool:
    """Whether the steps of a sweep's first shape can be computed for a block, and take long enough."""
    seconds_of_a_number = steps_of_a_shape(spec, workload) * _SECONDS_A_NUMBER
    if seconds_of_a_number * _MOST_NUMBERS < _MARGIN * _SECONDS_TO_COMPILE:
        return False
    try:
        step = Pack(workload, [Training(_a_training(spec, workload), 0)]).step_graph()
    except STOPS:
        raise
    except BaseException:  # noqa: BLE001  # What a training raises becomes its outcome, once it is trained.
        return False
    compiling = _SECONDS_TO_COMPILE + _SECONDS_AN_OPERATION * step.n_operations
    return seconds_of_a_number * step.n_numbers >= _MARGIN * compiling


def _a_training(spec: Sweep, workload: Workload[Any]) -> Any:
    """The parameters of a training in the corner of a sweep's space where each parameter has its first value."""
    corner = {name: dimension.grid()[0] for name, dimension in spec.varied().items()}
    return workload.parameters.resolve({**spec.fixed(), **corner})
