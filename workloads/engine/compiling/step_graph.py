"""Traces one optimizer step of one training as a graph: forward pass, gradients, clipping, update, progress.

In the optimizer's tensors the first axis is the training, here of length 1.
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
"""The prefixes of the names of a step's inputs. Rates (such as the learning rate) and batches change at every step."""


@dataclass(frozen=True)
class StepGraph:
    """The traced graph of one optimizer step of one training, with the names of its inputs and outputs.

    Attributes:
        graph: The graph, which computes the new values of `updated` from the tensors `inputs`.
        inputs: The names of the tensors that a step reads, `<prefix>/<name>`. Tensors that change from step to step
            come last.
    """

    graph: fx.GraphModule
    inputs: tuple[str, ...]
    updated: tuple[str, ...]

    @property
    def n_operations(self) -> int:
        """The number of operations of a step: a measure of its time to compile."""
        return len(operations_of(self.graph))

    @property
    def n_numbers(self) -> int:
        """The number of values that the operations of a step compute: a measure of its run time."""
        return numbers_of(self.graph)

    @property
    def n_multiplications(self) -> int:
        """The number of scalar multiplications in all matrix products of a step."""
        return multiplications_of(self.graph)


def step_inputs(lanes: LaneState) -> State:
    """Returns, without copying, the tensors that a program reads at every step, named `<prefix>/<name>`. Their first
    axis is the training."""
    optimizer, views = lanes.stepping, lanes.problem.layout.views
    state = optimizer.state_of({ROWS: lanes.rows})
    averages = {name: value for name, value in state.items() if name.endswith(f"/{ROWS}")}
    averages_by_parameter = [prefixed(name.removesuffix(f"/{ROWS}"), views(rows)) for name, rows in averages.items()]
    progress = {name: value for name, value in state.items() if name not in averages}
    varied = {
        name: value for name, value in optimizer.constants.items() if not (name in optimizer.usual or is_mask(name))
    }
    return {
        **prefixed(PARAMETER, lanes.parameters),
        **prefixed(
            OPTIMIZER, {name: value for part in (progress, *averages_by_parameter) for name, value in part.items()}
        ),
        **prefixed(CONSTANT, varied),
        **prefixed(BUFFER, lanes.buffers),
    }


def masks_of(lanes: LaneState) -> State:
    """Returns, for each parameter with frozen entries, a mask that is false at the frozen entries. The keys are the
    parameters' input names `parameter/<name>`.

    The caller of a program must restore frozen entries after every step. Masks within the program would change how all
    trainings are rounded.
    """
    masks = (lanes.problem.layout.views(rows) for name, rows in lanes.stepping.constants.items() if is_mask(name))
    return {name: mask for by_parameter in masks for name, mask in prefixed(PARAMETER, by_parameter).items()}


def has_lane_axis(name: str) -> bool:
    """Returns whether an input of a step's graph has an axis for the training.

    The optimizer's tensors have it. Buffers and the batch have none, because only the loss reads them, and the loss is
    written for a single training.
    """
    return name.startswith((PARAMETER, OPTIMIZER, CONSTANT, RATE))


def step_graph(lanes: LaneState, batch: Batch) -> StepGraph:
    """Traces one optimizer step of one training as a graph, from forward pass to update.

    Args:
        lanes: The trainings, any number of them. Operations that their update rule skips are left out of the graph.

    Raises:
        NoRuleError: If the step cannot be traced, or one of its operations cannot be computed for a block.
    """
    if not isinstance(lanes.optimizer, FirstOrder):
        raise NoRuleError(
            "the optimizer uses line searches, so a step cannot be compiled: the number of evaluations of the loss"
            " differs between steps"
        )
    problem, optimizer = lanes.problem, lanes.optimizer
    read = step_inputs(lanes) | prefixed(RATE, optimizer.ahead(range(1))[0]) | prefixed(BATCH, batch)
    names = tuple(read)
    updated = tuple(name for name in names if name.startswith((PARAMETER, OPTIMIZER)))
    loss_of = one_lane(problem.template, problem.workload.loss)

    def step(*values: Tensor) -> list[Tensor]:
        inputs = dict(zip(names, values, strict=True))
        parameters = {name: value.clone() for name, value in under(PARAMETER, inputs).items()}
        buffers, own_batch = under(BUFFER, inputs), under(BATCH, inputs)
        weights = {name: value[0] for name, value in parameters.items()}
        gradients, loss = grad_and_value(lambda at: loss_of(at, buffers, own_batch))(weights)
        state = {name: value.clone() for name, value in under(OPTIMIZER, inputs).items()}
        evaluated = loss.view(1), {name: value.unsqueeze(0) for name, value in gradients.items()}
        rates = under(RATE, inputs)
        options: dict[str, Any] = {"dtype": rates["learning_rate"].dtype, "device": rates["learning_rate"].device}
        usual = {name: torch.full((1, 1), value, **options) for name, value in optimizer.usual.items()}
        take_step(optimizer.rule, parameters, state, evaluated, usual | under(CONSTANT, inputs) | rates)
        after = prefixed(PARAMETER, parameters) | prefixed(OPTIMIZER, state)
        return [after[name] for name in updated]

    first = {name: value[:1].clone() if has_lane_axis(name) else value[0].clone() for name, value in read.items()}
    graph = traced(step, list(first.values()))
    check_rules(graph)
    return StepGraph(graph, names, updated)
