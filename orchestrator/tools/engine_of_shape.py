"""The engine that trains a shape of a workload on CPUs, in words."""

from collections.abc import Mapping
from typing import Any

from attnsweep.workloads.engine.block_step import StepGraph
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.programs import NoCompilerError, block_engine
from attnsweep.workloads.engine.traces import NoRuleError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import users_code


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
