"""Chooses the engine of a new sweep."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, prod
from typing import Any, Literal

from rich.console import Console

from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.training.trainer import STOPS
from attnsweep.search_spaces.dimensions import Categorical, Int
from attnsweep.search_spaces.numbered_draws import drawn_parameters
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.compiling.gradient import GradientGraph
from attnsweep.workloads.engine.compiling.libraries import NoCompilerError, block_engine
from attnsweep.workloads.engine.compiling.step_graph import StepGraph
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import users_code

_SECONDS_SAVED_BY_BLOCKS, _SECONDS_SAVED_BY_GRADIENTS = 1e-9, 1.5e-10
"""Seconds saved per number that a step computes. The vmapped engine takes 1 ns per number; blocks take 0.1 ns (the
smallest shipped model) to 0.3 ns (a user's attention). With large matrices the vmapped engine takes 0.3 ns, and a
compiled gradient half as much (benchmarks/RESULTS.md)."""
_LARGE_STEP, _SECONDS_SAVED_IN_LARGE_STEPS = 2_600_000, 1.2e-10
"""A step that computes this many numbers does not fit the processor's cache, even for blocks of eight trainings.
Compiling then saves a seventh to a fifth of the time, measured with the workloads of `docs/examples`."""
_SECONDS_TO_COMPILE, _SECONDS_AN_OPERATION = 10.0, 0.02
"""CPU seconds to compile, once per machine, and per operation of the program: 12 s for a step of 108 operations, 33 s
for a step of 1,125, and 17 s for a gradient of 301."""
_MARGIN = 2.0
"""Compiling must save this many times the seconds that it takes, over all trainings of one shape (equal static
parameters), because several trainers wait for the compiled program."""
_MOST_SAVED_IN_A_STEP = 2e-2
"""The most seconds per step that compiling can save. They show without computing a step that a short sweep would not
repay compiling."""
_TOO_SHORT = "its steps would not repay compiling"


@dataclass(frozen=True)
class EngineChoice:
    """A sweep's engine; `reason` is a clause, empty if none was recorded."""

    engine: Engine
    reason: str = ""

    @property
    def notice(self) -> str | None:
        """A line that explains the long pause before training; `None` if training begins at once."""
        if self.engine != "blocks":
            return None
        return "training in compiled blocks: compiling takes 10 to 30 s, once for each shape and machine"


def engine_for(
    spec: Sweep, workload: Workload[Any], wanted: Engine | Literal["auto"], console: Console
) -> EngineChoice:
    """Chooses `blocks` if the sweep is long enough to repay compiling and this machine can compile, else `vmapped`.

    Args:
        console: Prints a line if compiled blocks were asked for, or would be faster, but are not possible.
    """
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    obstacle = _impossible(spec, workload) if wanted == "blocks" else None
    if wanted != "auto" and obstacle is None:
        return EngineChoice(wanted, "--engine asks for it")
    obstacle = obstacle or _no_gain(spec, workload)
    if obstacle is None:
        try:
            block_engine()
        except NoCompilerError as error:
            obstacle = f"compiled blocks would be several times faster, but {error}"
            say(f"this sweep trains vmapped: {obstacle}")
    elif wanted == "blocks":
        say(f"this sweep trains vmapped, not in blocks: {obstacle}")
    if obstacle is not None:
        return EngineChoice("vmapped", obstacle)
    return EngineChoice("blocks", "its steps repay compiling")


def engine_of_shape(workload: Workload[Any], values: Mapping[str, Value]) -> str:
    """Says how a long sweep of such trainings would compute its steps or, if they cannot be compiled, why not.

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
    """Estimates how many steps the trainings of one shape take in all: an upper bound, since they may end early.

    All shapes are assumed to be equally frequent.
    """
    trainings = spec.trials * most_wanted(spec.replicates)
    n_steps: int = _first_training(spec, workload).parameters.n_steps
    return ceil(trainings / prod(shapes_by(spec, workload).values())) * n_steps


def shapes_by(spec: Sweep, workload: Workload[Any]) -> dict[str, int]:
    """Returns the static parameters that a sweep varies, each with its number of values."""
    declared = workload.parameters.declared()
    return {
        name: len(dimension.grid()) if isinstance(dimension, Categorical) else dimension.high - dimension.low + 1
        for name, dimension in spec.drawn().items()
        if isinstance(dimension, Categorical | Int)
        and any(declared[parameter].static for parameter in spec.unzipped({name: dimension.grid()[0]}))
    }


def _no_gain(spec: Sweep, workload: Workload[Any]) -> str | None:
    training, steps = _first_training(spec, workload), steps_of_a_shape(spec, workload)
    if steps * _MOST_SAVED_IN_A_STEP < _MARGIN * _SECONDS_TO_COMPILE:
        return _TOO_SHORT
    try:
        pack = Pack(workload, [training])
        # A quick count of the operations of a step comes first, because the exact count imports PyTorch's compiler,
        # which takes longer than all steps of many sweeps. For shipped workloads, the quick count is 0.9 to 1.6 times
        # the exact one.
        if steps * pack.count_numbers() * _SECONDS_SAVED_BY_BLOCKS < _SECONDS_TO_COMPILE:
            return _TOO_SHORT
        graph = pack.compiled_graph()
    except STOPS:
        raise
    except NoRuleError as error:
        return str(error)
    except BaseException:  # noqa: BLE001  # An error of a training becomes its outcome once it is trained.
        return "its first training raises an error"
    if isinstance(graph, GradientGraph):
        saved = _SECONDS_SAVED_BY_GRADIENTS
    else:
        saved = _SECONDS_SAVED_BY_BLOCKS if graph.n_numbers < _LARGE_STEP else _SECONDS_SAVED_IN_LARGE_STEPS
    compiling = _SECONDS_TO_COMPILE + _SECONDS_AN_OPERATION * graph.n_operations
    return None if steps * graph.n_numbers * saved >= _MARGIN * compiling else _TOO_SHORT


def _impossible(spec: Sweep, workload: Workload[Any]) -> str | None:
    try:
        Pack(workload, [_first_training(spec, workload)]).compiled_graph()
    except STOPS:
        raise
    except NoRuleError as error:
        return str(error)
    except BaseException:  # noqa: BLE001  # An error of a training becomes its outcome once it is trained.
        return None
    return None


def _first_training(spec: Sweep, workload: Workload[Any]) -> Training[Any]:
    if spec.where or spec.derived():
        return Training(drawn_parameters(spec, workload.parameters, 64)[0], 0)
    corner = {name: dimension.grid()[0] for name, dimension in spec.drawn().items()}
    return Training(workload.parameters.resolve({**spec.fixed(), **spec.unzipped(corner)}), 0)
