"""Chooses the engine of a new sweep."""

from collections.abc import Callable, Mapping
from math import ceil, prod
from typing import Any, Literal

from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.training.trainer import STOPS
from attnsweep.search_spaces.dimensions import Categorical, Int
from attnsweep.search_spaces.numbered_draws import drawn_parameters
from attnsweep.search_spaces.replication import max_replicates
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.executors import NoCompilerError, NoRuleError
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import users_code

_SECONDS_SAVED, _LARGE_STEP, _SECONDS_SAVED_IN_LARGE_STEPS = 5e-10, 100_000, 2e-10
"""CPU seconds that compiling saves per number that a step computes (`benchmarks/vs_jax.py`); fewer in a large step."""
_SECONDS_TO_COMPILE, _SECONDS_AN_OPERATION = 1.0, 0.003
"""CPU seconds to compile a shape, once per machine, and those to add per operation of the step."""
_MARGIN = 2.0
"""Compiling must save this many times the seconds that it takes, because several trainers wait for a program."""
_TOO_SHORT = "its steps would not repay compiling"


def engine_for(
    spec: Sweep, workload: Workload[Any], wanted: Engine | Literal["auto"], say: Callable[[str], object]
) -> tuple[Engine, str]:
    """The engine and why, as a clause; with `auto` `compiled` if the sweep would repay compiling and this machine can.
    `say` gets a line if the workload does not allow the compiled steps asked for, or only a compiler is missing."""
    if wanted == "eager":
        return "eager", "--engine asks for it"
    training = _first_training(spec, workload)
    try:
        pack = Pack(workload, [training])
        if wanted == "compiled":
            obstacle, _ = None, pack.trace()
        elif (obstacle := _no_gain(pack, _steps_of_a_shape(spec, workload, training))) is None:
            _compiled_engine()
    except STOPS:
        raise
    except (NoRuleError, NoCompilerError) as error:
        obstacle = str(error)
        if wanted == "compiled" or isinstance(error, NoCompilerError):
            say(f"this sweep trains eagerly, not in compiled steps: {obstacle}")
    except BaseException:  # noqa: BLE001  # An error of a training becomes its outcome once it is trained.
        obstacle = "its first training raises an error"
    if obstacle is not None:
        return "eager", obstacle
    return "compiled", "--engine asks for it" if wanted == "compiled" else "its steps repay compiling"


def _compiled_engine() -> str:
    from attnsweep.workloads.engine.compiling.building import compiled_engine

    return compiled_engine()


def engine_of_shape(workload: Workload[Any], values: Mapping[str, Value]) -> str:
    """The engine of a long sweep of such trainings, if eager with the obstacle to compiling. Raises UserError if the
    workload does not accept the parameters, or its code fails."""
    parameters = workload.parameters.resolve(dict(values))
    with users_code(workload.name, "a workload that trains", "see attnsweep.check_workload"):
        pack = Pack(workload, [Training(parameters, 0)])
    try:
        pack.trace()
    except NoRuleError as error:
        return f"eager: {error}"
    try:
        return _compiled_engine()
    except NoCompilerError as error:
        return f"eager: its steps could be compiled, but on this machine {error}"


def _steps_of_a_shape(spec: Sweep, workload: Workload[Any], training: Training[Any]) -> int:
    """How many steps the trainings of one shape take together, if none ends early, all shapes are equally frequent, and
    their trainings are as long as this one."""
    declared = workload.parameters.declared()
    n_shapes = prod(
        len(dimension.grid()) if isinstance(dimension, Categorical) else dimension.high - dimension.low + 1
        for name, dimension in spec.drawn().items()
        if isinstance(dimension, Categorical | Int)
        and any(declared[parameter].static for parameter in spec.unzipped({name: dimension.grid()[0]}))
    )
    n_steps: int = training.parameters.n_steps
    return ceil(spec.trials * max_replicates(spec.replicates) / n_shapes) * n_steps


def _no_gain(pack: Pack[Any], steps: int) -> str | None:
    # A quick count first: importing PyTorch's tracer takes longer than the steps of many sweeps.
    if steps * pack.count_numbers() * _SECONDS_SAVED < _SECONDS_TO_COMPILE:
        return _TOO_SHORT
    trace = pack.trace()
    saved = _SECONDS_SAVED if trace.n_numbers < _LARGE_STEP else _SECONDS_SAVED_IN_LARGE_STEPS
    compiling = _SECONDS_TO_COMPILE + _SECONDS_AN_OPERATION * trace.n_operations
    return None if steps * trace.n_numbers * saved >= _MARGIN * compiling else _TOO_SHORT


def _first_training(spec: Sweep, workload: Workload[Any]) -> Training[Any]:
    if spec.where or spec.derived():
        return Training(drawn_parameters(spec, workload.parameters, 64)[0], 0)
    corner = {name: dimension.grid()[0] for name, dimension in spec.drawn().items()}
    return Training(workload.parameters.resolve({**spec.fixed(), **spec.unzipped(corner)}), 0)
