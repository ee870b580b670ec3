"""Which engine takes the steps of a new sweep, from its beginning to its end."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any, Literal, Self

from rich.console import Console

from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.training.error_text import STOPS
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.dimensions import Categorical, Int
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.compiling.gradient import GradientGraph
from attnsweep.workloads.engine.compiling.libraries import NoCompilerError, block_engine
from attnsweep.workloads.engine.compiling.step_graph import StepGraph
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.executors.programs import KnownPrograms, Programs
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import users_code

_SECONDS_SAVED_BY_BLOCKS, _SECONDS_SAVED_BY_GRADIENTS = 1e-9, 1.5e-10
"""For each number that a step computes. The vmapped engine takes 1 ns, of which blocks leave a tenth (system P) to a
third (a user's attention); with large matrices 0.3 ns, of which a compiled gradient leaves a half
(benchmarks/RESULTS.md)."""
_LARGE_STEP, _SECONDS_SAVED_IN_LARGE_STEPS = 2_600_000, 1.2e-10
"""A step of so many numbers no longer fits the cache, even in blocks of eight: of the template's and those of
`docs/examples`, with 64 sequences a batch, blocks save a seventh to a fifth."""
_SECONDS_TO_COMPILE, _SECONDS_AN_OPERATION = 10.0, 0.02
"""Of CPU, once per machine: 12 s for the 108 operations of a step of system P, 33 s for the 1,125 of the encoder, 17 s
for the 301 of the gradient of solution 3."""
_MARGIN = 2.0
"""How often all trainings of one shape have to repay a compile, since several trainers wait for it."""
_MOST_SAVED_IN_A_STEP, _MOST_SAVED_IN_PARTS = 1e-3, 2e-2
"""Seconds: more than the step of any shape saves, so that the step of a short sweep need not be traced."""


@dataclass(frozen=True)
class EngineChoice:
    """The engine of a sweep, and why it is that one.

    Attributes:
        engine: What takes the steps of its trainings.
        reason: A clause; empty where it was not recorded, before version 0.2.
    """

    engine: Engine
    reason: str = ""

    @property
    def notice(self) -> str | None:
        """What a user has to know while nothing seems to happen; `None` if all trains at once."""
        if self.engine != "blocks":
            return None
        return "training in compiled blocks: compiling takes 10 to 30 s, once for each shape and machine"


def engine_for(
    spec: Sweep, workload: Workload[Any], wanted: Engine | Literal["auto"], console: Console
) -> EngineChoice:
    """The engine of a new sweep. It depends on the spec, the workload and whether this machine can compile.

    Args:
        spec: The sweep.
        workload: Its workload.
        wanted: `auto` for the faster one.
        console: Told where compiled blocks were asked for, or would be faster, and cannot be had.
    """
    obstacle = _no_blocks(spec, workload) if wanted == "blocks" else None
    if wanted != "auto" and obstacle is None:
        return EngineChoice(wanted, "--engine asks for it")
    obstacle = obstacle or _no_gain(spec, workload)
    if obstacle is None:
        try:
            block_engine()
        except NoCompilerError as error:
            obstacle = f"compiled blocks would be several times faster, but {error}"
            _tell(console, f"this sweep trains vmapped: {obstacle}")
    elif wanted == "blocks":
        _tell(console, f"this sweep trains vmapped, not in blocks: {obstacle}")
    if obstacle is not None:
        return EngineChoice("vmapped", obstacle)
    return EngineChoice("blocks", "its steps repay compiling")


def _tell(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)


def engine_of_shape(workload: Workload[Any], values: Mapping[str, Value]) -> str:
    """What would take the steps of a long sweep of trainings with these parameters, and why.

    Raises:
        UserError: If the workload does not accept the parameters, or if its code fails.
    """
    parameters = workload.parameters.resolve(dict(values))
    with users_code(workload.name, "a workload that trains", "see attnsweep.check_workload"):
        pack = Pack(workload, [Training(parameters, 0)])
    try:
        graph = pack.compiled_graph()
    except NoRuleError as error:
        return f"vmapped: {error}"
    try:
        engine = block_engine()
    except NoCompilerError as error:
        return f"vmapped: its steps could be compiled, but on this machine {error}"
    return engine if isinstance(graph, StepGraph) else f"{engine}: the loss and its gradient"


def steps_of_a_shape(spec: Sweep, workload: Workload[Any]) -> int:
    """The most steps that all trainings of one shape take, if the shapes of a sweep are equally frequent."""
    declared = workload.parameters.declared()
    n_shapes = prod(
        len(dimension.grid()) if isinstance(dimension, Categorical) else dimension.high - dimension.low + 1
        for name, dimension in spec.drawn().items()
        if isinstance(dimension, Categorical | Int)
        and any(declared[each].static for each in spec.unzipped({name: dimension.grid()[0]}))
    )
    trainings = spec.trials * most_wanted(spec.replicates)
    n_steps: int = _a_training(spec, workload).n_steps
    return ceil(trainings / n_shapes) * n_steps


@dataclass(frozen=True)
class Ahead:
    """What a thread prepares while Ray starts.

    Attributes:
        choice: The engine of the sweep.
        programs: Of its first shape, for trainers.
    """

    choice: "Future[EngineChoice]" = field(default_factory=Future)
    programs: "Future[KnownPrograms]" = field(default_factory=Future)

    @classmethod
    def of(cls, spec: Sweep, workload: Workload[Any], resources: Resources, choose: Callable[[], EngineChoice]) -> Self:
        """Chooses the engine, then compiles what the first pack needs. What is raised meanwhile is raised by `choice`.

        Args:
            spec: The sweep.
            workload: Its workload.
            resources: What it runs on. What trains in this process compiles its own programs: PyTorch traces in one
                thread at a time.
            choose: Chooses the engine.
        """
        ahead = cls()

        def prepare() -> None:
            try:
                ahead.choice.set_result(choose())
            except BaseException as error:  # noqa: BLE001  # Raised where the result is asked for.
                ahead.choice.set_exception(error)
                return
            is_compiled = (
                ahead.choice.result().engine == "blocks" and not resources.local and resources.device != "cuda"
            )
            ahead.programs.set_result(_first_programs(spec, workload) if is_compiled else KnownPrograms())

        threading.Thread(target=prepare, name="ahead", daemon=True).start()
        return ahead


def _first_programs(spec: Sweep, workload: Workload[Any]) -> KnownPrograms:
    """The program of a sweep's first shape, compiled if this machine has not done so before."""
    found = KnownPrograms()
    # Whatever keeps it from being compiled, the first trainer meets it too, and says so.
    with suppress(BaseException):
        Pack(workload, [Training(_a_training(spec, workload), 0)], programs=Programs(found)).compile()
    return found.as_sent()


_TOO_SHORT = "its steps would not repay compiling"


def _no_gain(spec: Sweep, workload: Workload[Any]) -> str | None:
    """Why the steps of a sweep's first shape are not compiled; `None` if they can be, and take long enough."""
    training, steps = Training(_a_training(spec, workload), 0), steps_of_a_shape(spec, workload)
    in_parts = workload.split(training.parameters) is not None
    if steps * (_MOST_SAVED_IN_PARTS if in_parts else _MOST_SAVED_IN_A_STEP) < _MARGIN * _SECONDS_TO_COMPILE:
        return _TOO_SHORT
    try:
        pack = Pack(workload, [training])
        # Counting is cheap; to trace, PyTorch imports its compiler, which takes longer than many a sweep's steps. Of
        # shipped workloads it finds 0.9 to 1.6 times as many as a graph has, whose operations are others.
        if not in_parts and steps * pack.count_numbers() * _SECONDS_SAVED_BY_BLOCKS < _SECONDS_TO_COMPILE:
            return _TOO_SHORT
        graph = pack.compiled_graph()
    except STOPS:
        raise
    except NoRuleError as error:
        return str(error)
    except BaseException:  # noqa: BLE001  # What a training raises becomes its outcome, once it is trained.
        return "its first training raises an error"
    compiling = _SECONDS_TO_COMPILE + _SECONDS_AN_OPERATION * graph.n_operations
    repays = steps * graph.n_numbers * _seconds_saved(graph) >= _MARGIN * compiling
    return None if repays else _TOO_SHORT


def _no_blocks(spec: Sweep, workload: Workload[Any]) -> str | None:
    """Why the steps of a sweep's first shape cannot be compiled; `None` if they can, or if it cannot be found out."""
    try:
        Pack(workload, [Training(_a_training(spec, workload), 0)]).compiled_graph()
    except STOPS:
        raise
    except NoRuleError as error:
        return str(error)
    except BaseException:  # noqa: BLE001  # As above.
        return None
    return None


def _seconds_saved(graph: StepGraph | GradientGraph) -> float:
    """For each number that a step computes."""
    if isinstance(graph, GradientGraph):
        return _SECONDS_SAVED_BY_GRADIENTS
    return _SECONDS_SAVED_BY_BLOCKS if graph.n_numbers < _LARGE_STEP else _SECONDS_SAVED_IN_LARGE_STEPS


def _a_training(spec: Sweep, workload: Workload[Any]) -> Any:
    """The parameters of a training in the corner of a sweep's space where each parameter has its first value."""
    corner = {name: dimension.grid()[0] for name, dimension in spec.drawn().items()}
    return workload.parameters.resolve({**spec.fixed(), **spec.unzipped(corner)})
