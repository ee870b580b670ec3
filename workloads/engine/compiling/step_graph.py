"""One optimizer step of one training as a graph: forward pass, gradients, clipping, update, progress.

Axes: the tensors that an optimizer sees have the leading lane axis, here of length 1.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.func import grad_and_value

from attnsweep.workloads.engine.compiling.lanes_last import check_rules
from attnsweep.workloads.engine.compiling.traces import (
    NoRuleError,
    multiplications_of,
    numbers_of,
    operations_of,
    traced,
)
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.first_order import FirstOrder, is_mask, take_step
from attnsweep.workloads.engine.functional import one_lane
from attnsweep.workloads.engine.lane_state import LaneState
from attnsweep.workloads.engine.layout import ROWS, prefixed, under
from attnsweep.workloads.engine.optimizers import State

PARAMETER, OPTIMIZER, CONSTANT, BUFFER, RATE, BATCH = "parameter", "optimizer", "constant", "buffer", "rate", "batch"
"""The prefixes of a step's inputs. Rates and batches differ from step to step."""


@dataclass(frozen=True)
class StepGraph:
    """The step of one training.

    Attributes:
        graph: From the inputs, in the order of `inputs`, to the new values of `updated`, in that order.
        inputs: Names of the tensors that a step reads, `<prefix>/<name>`. Those that differ from step to step come
            last.
        updated: Names of those that it updates.
    """

    graph: fx.GraphModule
    inputs: tuple[str, ...]
    updated: tuple[str, ...]

    @property
    def n_operations(self) -> int:
        """How many operations a step has: a measure of the time to compile it."""
        return len(operations_of(self.graph))

    @property
    def n_numbers(self) -> int:
        """How many numbers the operations of a step compute: a measure of its time."""
        return numbers_of(self.graph)

    @property
    def n_multiplications(self) -> int:
        """How many multiplications its matrix products have."""
        return multiplications_of(self.graph)


def step_inputs(lanes: LaneState) -> State:
    """The tensors (L, ...) that all steps read, by `<prefix>/<name>`: no copies."""
    optimizer, views = lanes.stepping, lanes.problem.layout.views
    state = optimizer.state_of({ROWS: lanes.rows})
    averages = {name: value for name, value in state.items() if name.endswith(f"/{ROWS}")}
    of_parameters = [prefixed(name.removesuffix(f"/{ROWS}"), views(each)) for name, each in averages.items()]
    progress = {name: value for name, value in state.items() if name not in averages}
    varied = {
        name: value for name, value in optimizer.constants.items() if not (name in optimizer.usual or is_mask(name))
    }
    return {
        **prefixed(PARAMETER, lanes.parameters),
        **prefixed(OPTIMIZER, {name: value for part in (progress, *of_parameters) for name, value in part.items()}),
        **prefixed(CONSTANT, varied),
        **prefixed(BUFFER, lanes.buffers),
    }


def masks_of(lanes: LaneState) -> State:
    """Which numbers of the step's inputs `parameter/<name>` move, (L, ...) bool; none where no lane freezes any.

    Whoever runs a program puts the others back: compiled into it, masks would change how all lanes are rounded.
    """
    found = (lanes.problem.layout.views(rows) for name, rows in lanes.stepping.constants.items() if is_mask(name))
    return {name: mask for each in found for name, mask in prefixed(PARAMETER, each).items()}


def has_lane_axis(name: str) -> bool:
    """Whether an input of one training has a lane axis, of length 1, because the optimizer reads it."""
    return name.startswith((PARAMETER, OPTIMIZER, CONSTANT, RATE))


def step_graph(lanes: LaneState, batch: Batch) -> StepGraph:
    """Traces the step of one training.

    Args:
        lanes: Any number of trainings. What their update rule leaves out is left out; its values are not read.
        batch: The batch (L, ...) of one step.

    Raises:
        NoRuleError: If the step cannot be traced, or one of its operations cannot be computed for a block.
    """
    if not isinstance(lanes.optimizer, FirstOrder):
        raise NoRuleError("its optimizer searches along lines, so its steps differ in length")
    problem, optimizer = lanes.problem, lanes.optimizer
    read = step_inputs(lanes) | prefixed(RATE, optimizer.ahead(range(1))[0]) | prefixed(BATCH, batch)
    names = tuple(read)
    updated = tuple(name for name in names if name.startswith((PARAMETER, OPTIMIZER)))
    loss_of = one_lane(problem.template, problem.workload.loss)

    def step(*values: Tensor) -> list[Tensor]:
        found = dict(zip(names, values, strict=True))
        parameters = {name: value.clone() for name, value in under(PARAMETER, found).items()}
        buffers, own_batch = under(BUFFER, found), under(BATCH, found)
        own = {name: value[0] for name, value in parameters.items()}
        gradients, loss = grad_and_value(lambda at: loss_of(at, buffers, own_batch))(own)
        state = {name: value.clone() for name, value in under(OPTIMIZER, found).items()}
        of_lanes = loss.view(1), {name: value.unsqueeze(0) for name, value in gradients.items()}
        rates = under(RATE, found)
        of_type: dict[str, Any] = {"dtype": rates["learning_rate"].dtype, "device": rates["learning_rate"].device}
        usual = {name: torch.full((1, 1), value, **of_type) for name, value in optimizer.usual.items()}
        take_step(optimizer.rule, parameters, state, of_lanes, usual | under(CONSTANT, found) | rates)
        after = prefixed(PARAMETER, parameters) | prefixed(OPTIMIZER, state)
        return [after[name] for name in updated]

    first = {name: value[:1].clone() if has_lane_axis(name) else value[0].clone() for name, value in read.items()}
    graph = traced(step, list(first.values()))
    check_rules(graph)
    return StepGraph(graph, names, updated)
