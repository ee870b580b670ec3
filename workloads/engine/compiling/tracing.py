"""Traces one training's step, from the forward pass to the update, as a graph of PyTorch's basic operations."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.func import functionalize, grad_and_value
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from attnsweep.workloads.engine.compiling.operations import name_of
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.executors import Examine, NoRuleError
from attnsweep.workloads.engine.first_order import FirstOrder, is_mask, take_step
from attnsweep.workloads.engine.functional import one_lane
from attnsweep.workloads.engine.lane_state import LaneState
from attnsweep.workloads.engine.layout import ROWS, prefixed, under
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.vectorization import reason_of

aten = torch.ops.aten
OPTIMIZER, CONSTANT, BUFFER, RATE, BATCH = "optimizer", "constant", "buffer", "rate", "batch"
"""The prefixes of the names of a step's inputs. Rates (such as the learning rate) and batches change at every step."""
GRADIENT, LOSS, HELD_OUT = "gradient", "loss", "held out"
IN_ONE_THREAD = threading.RLock()
"""Taken to trace, because PyTorch stores a trace's state in globals."""


@dataclass(frozen=True)
class Trace:
    """The graph of one training's step, of its loss and gradient, or of a probe.

    Attributes:
        inputs: The names of its inputs, `rows` or `<prefix>/<name>`; those that change at every step come last.
        results: The names of its results, in a step those of the inputs that they replace.
        examples: The inputs, of one training, with which it was traced.
    """

    graph: fx.GraphModule
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    examples: tuple[Tensor, ...]

    def graph_results(self) -> list[fx.Node]:
        found: Any = next(node for node in self.graph.graph.nodes if node.op == "output").args[0]
        return list(found)

    @property
    def n_operations(self) -> int:
        return len(operations_of(self.graph))

    @property
    def n_numbers(self) -> int:
        """How many the operations compute: a measure of the step's time."""
        values = (node.meta.get("val") for node in operations_of(self.graph))
        return sum(value.numel() for value in values if isinstance(value, Tensor))

    @property
    def n_multiplications(self) -> int:
        """Scalar multiplications in matrix products."""
        products: list[Any] = [
            node for node in operations_of(self.graph) if node.target in (aten.mm.default, aten.bmm.default)
        ]
        return sum(node.meta["val"].numel() * node.args[0].meta["val"].shape[-1] for node in products)


def is_of_step(name: str) -> bool:
    return name.startswith((RATE, BATCH, HELD_OUT))


def fixed_inputs(lanes: LaneState) -> State:
    """What a program reads of the trainings besides rates and batch, with trainings as first axis; no copies."""
    state: State = {ROWS: lanes.rows}
    if isinstance(lanes.optimizer, FirstOrder):
        optimizer = lanes.optimizer
        constants = {name: value for name, value in optimizer.constants.items() if not is_mask(name)}
        state |= prefixed(OPTIMIZER, optimizer.state_of(state)) | prefixed(CONSTANT, constants)
    return state | prefixed(BUFFER, lanes.buffers)


def step_trace(lanes: LaneState, batch: Batch) -> Trace:
    """One optimizer step. Operations that no training's update needs are left out."""
    optimizer = lanes.stepping
    read = fixed_inputs(lanes) | prefixed(RATE, optimizer.ahead(range(1))[0]) | prefixed(BATCH, batch)

    def step(inputs: State) -> State:
        loss, gradient = _descended(lanes, inputs)
        parameters = {ROWS: inputs[ROWS].clone()}
        state = {name: value.clone() for name, value in under(OPTIMIZER, inputs).items()}
        rates = under(CONSTANT, inputs) | under(RATE, inputs)
        take_step(optimizer.rule, parameters, state, (loss, {ROWS: gradient}), rates)
        return parameters | prefixed(OPTIMIZER, state)

    return _trace(step, read)


def gradient_trace(lanes: LaneState, batch: Batch) -> Trace:
    """Loss and gradient, for optimizers that evaluate them several times in a step."""
    read = {ROWS: lanes.rows} | prefixed(BUFFER, lanes.buffers) | prefixed(BATCH, batch)

    def descent(inputs: State) -> State:
        loss, gradient = _descended(lanes, inputs)
        return {LOSS: loss, GRADIENT: gradient}

    return _trace(descent, read)


def measures_trace(lanes: LaneState, batch: Batch, trained_on: Batch | None, examine: Examine) -> Trace:
    """A probe: the loss of a step, and the held-out loss with its gradient and the metrics."""
    read = {ROWS: lanes.rows} | prefixed(BUFFER, lanes.buffers) | prefixed(BATCH, trained_on or {})
    read |= prefixed(HELD_OUT, batch)
    blueprint = lanes.blueprint
    loss_of = one_lane(blueprint.template, blueprint.workload.loss)

    def measured(inputs: State) -> State:
        buffers, own, held_out = (
            {n: v[0] for n, v in under(prefix, inputs).items()} for prefix in (BUFFER, BATCH, HELD_OUT)
        )
        weights = {name: value[0] for name, value in blueprint.layout.views(inputs[ROWS]).items()}
        gradients, (loss, measures) = grad_and_value(lambda at: examine(at, buffers, held_out), has_aux=True)(weights)
        gradient = blueprint.layout.rows({name: value.unsqueeze(0) for name, value in gradients.items()})
        found = {} if trained_on is None else {"loss": loss_of(weights, buffers, own)}
        found |= {"eval_loss": loss, **measures}
        return {GRADIENT: gradient, **{name: value.reshape(1, *value.shape) for name, value in found.items()}}

    return _trace(measured, read)


def _descended(lanes: LaneState, inputs: State) -> tuple[Tensor, Tensor]:
    """The loss (1,) and its gradient, a row (1, n)."""
    layout, loss_of = lanes.blueprint.layout, one_lane(lanes.blueprint.template, lanes.blueprint.workload.loss)
    buffers, batch = ({n: v[0] for n, v in under(prefix, inputs).items()} for prefix in (BUFFER, BATCH))
    weights = {name: value[0] for name, value in layout.views(inputs[ROWS]).items()}
    gradients, loss = grad_and_value(lambda at: loss_of(at, buffers, batch))(weights)
    return loss.view(1), layout.rows({name: value.unsqueeze(0) for name, value in gradients.items()})


def _trace(function: Callable[[State], State], read: State) -> Trace:
    names, results = tuple(read), list[str]()

    def listed(*values: Tensor) -> list[Tensor]:
        found = function(dict(zip(names, values, strict=True)))
        results[:] = found
        return [*found.values()]

    examples = tuple(value[:1].detach().clone() for value in read.values())
    return Trace(traced(listed, examples), names, tuple(results), examples)


def traced(function: Callable[..., Any], examples: Sequence[Tensor]) -> fx.GraphModule:
    """A function's graph of basic operations, none of which changes a tensor in place; a `NoRuleError` if it cannot be
    traced, for example because it branches on a tensor's value."""
    try:
        # The MATH backend computes attention by basic operations.
        with IN_ONE_THREAD, sdpa_kernel(SDPBackend.MATH), _Traceable():
            for _ in range(2):  # decompositions may change tensors in place
                pure = functionalize(function, remove="mutations")
                graph = function = make_fx(pure, decomposition_table=_decompositions(), tracing_mode="fake")(*examples)
                if not any(name_of(node.target).endswith("_") for node in operations_of(graph)):
                    break
    except Exception as error:
        raise NoRuleError(f"the training step cannot be traced: {reason_of(error)}") from error
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def operations_of(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "call_function"]


class _Traceable(TorchFunctionMode):
    """Replaces what cannot be traced by what computes the same."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _TRACEABLE.get(func, func)(*args, **(kwargs or {}))


def _one_hot(tensor: Tensor, num_classes: int) -> Tensor:
    # PyTorch's own reads values, to check that they are in range.
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)


_TRACEABLE: dict[Any, Callable[..., Any]] = {torch.nn.functional.one_hot: _one_hot}


def _variance_and_mean(
    value: Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = list(range(value.dim())) if dim is None or dim == [] else dim
    centred = value - value.mean(dims, keepdim=True)
    total = (centred * centred).sum(dims, keepdim=keepdim)
    n = value.numel() // max(total.numel(), 1) - (1 if correction is None else correction)
    return total / n, value.mean(dims, keepdim=keepdim)


def _norm(value: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    if ord != 2 or dtype is not None:
        raise NoRuleError(f"a norm of the order {ord} cannot be compiled")
    return (value * value).sum(list(range(value.dim())) if dim is None else dim, keepdim=keepdim).sqrt()


def _layer_norm(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.dim() - len(shape), x.dim()))
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    root = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    out = centred * root
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, root


def _repeat(value: Tensor, repeats: Sequence[int]) -> Tensor:
    for axis, n in enumerate(repeats, value.dim() - len(repeats)):
        value = torch.cat([value] * n, axis) if axis >= 0 else torch.stack([value] * n)
    return value


def _decompositions() -> dict[Any, Callable[..., Any]]:
    further = [
        *(aten.addmm, aten.baddbmm, aten.mv, aten.dot, aten.addcmul, aten.addcdiv, aten.lerp, aten.mse_loss),
        *(aten._softmax, aten._softmax_backward_data, aten._log_softmax, aten._log_softmax_backward_data),
        *(aten.native_layer_norm_backward, aten.native_batch_norm, aten.std, aten.gelu, aten.gelu_backward),
        *(aten.native_group_norm, aten.native_group_norm_backward, aten.silu, aten.silu_backward),
        *(aten.select_backward, aten.slice_backward, aten.diagonal_backward, aten.threshold_backward),
        *(aten.unbind, aten.split, aten.split_with_sizes, aten.stack, aten.t, aten.transpose, aten.trace),
        *(aten.tril, aten.triu, aten.masked_fill, aten.leaky_relu, aten.elu, aten.softplus),
    ]
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    table.update(get_decompositions(further))
    for not_decomposed in (aten.embedding.default, aten.embedding_dense_backward.default, aten.index_put.default):
        table.pop(not_decomposed, None)
    table |= {
        aten.var.correction: lambda *given, **named: _variance_and_mean(*given, **named)[0],
        aten.var_mean.correction: _variance_and_mean,
        aten.linalg_vector_norm.default: _norm,
        aten.native_layer_norm.default: _layer_norm,
        aten.repeat.default: _repeat,
        torch.ops.prims.squeeze.default: aten.squeeze.dims,
    }
    return table
