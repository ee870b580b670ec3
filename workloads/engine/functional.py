"""Turns functions of a module into pure functions of tensors, which `vmap` maps over trainings; differentiates them."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap
from torch.utils._pytree import tree_map

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.engine_forms import DROPOUT, EngineForms, without_dropout
from attnsweep.workloads.engine.layout import ROWS, under
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.vectorization import refusal_of, told_to_users
from attnsweep.workloads.errors import SpecError

R = TypeVar("R")


def one_lane(template: nn.Module, function: Callable[[nn.Module, Batch], R]) -> Callable[[State, State, Batch], R]:
    """A function of module and batch, as one of parameters, buffers and batch; `template`'s own values are not read."""
    places = _places_in(template)
    has_padding = any(isinstance(part, nn.Embedding) and part.padding_idx is not None for part in template.modules())
    is_plain: dict[Hashable, bool] = {}

    def call(parameters: State, buffers: State, batch: Batch) -> R:
        kind = tuple((name, value.shape) for name, value in batch.items())
        if is_plain.get(kind):
            with _holding(places, parameters | buffers):
                return function(template, batch)
        data = {name: value for name, value in batch.items() if not name.startswith(f"{DROPOUT}/")}
        with EngineForms(under(DROPOUT, batch), has_padding) as forms, _holding(places, parameters | buffers):
            result = function(template, data)
        # Intercepting every operation costs time: where the first call replaced none, later ones do without.
        is_plain[kind] = not forms.replaced
        return result

    return call


Places = Mapping[str, Sequence[tuple[dict[str, Any], str]]]


def _places_in(template: nn.Module) -> Places:
    """By name, the dictionaries and keys that hold a module's tensor: several for a tied one."""
    # A module may override `named_parameters`; state goes by what it says.
    names = {id(value): name for name, value in (*template.named_parameters(), *template.named_buffers())}
    places: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for prefix, part in template.named_modules():
        for held in (part._parameters, part._buffers):
            for key, value in held.items():
                own = f"{prefix}.{key}" if prefix else key
                name = names.get(id(value), own)
                places.setdefault(name, []).append((held, key))
    return places


@contextmanager
def _holding(places: Places, state: State) -> Iterator[None]:
    """Within, a module has `state`'s tensors. `functional_call` would spend a twentieth of a step to find places."""
    own = [(held, key, held[key], value) for name, value in state.items() for held, key in places[name]]
    try:
        for held, key, _, value in own:
            held[key] = value
        yield
    finally:
        for held, key, before, _ in own:
            held[key] = before


def forms_in(
    template: nn.Module, function: Callable[[nn.Module, Batch], Any], state: State, batch: Batch
) -> EngineForms:
    """Runs a function of one training, without dropout, and returns its context: `replaced` names the functions that
    the engine replaced, `masks.sites` are the calls of dropout."""
    forms = without_dropout()
    with torch.no_grad(), told_to_users(), forms, _holding(_places_in(template), state):
        function(template, batch)
    return forms


def in_eval_mode(function: Callable[[nn.Module, Batch], R]) -> Callable[[nn.Module, Batch], R]:
    """All measurements find the module in evaluation mode."""

    def measured(module: nn.Module, batch: Batch) -> R:
        training = [part for part in module.modules() if part.training]
        module.eval()
        try:
            return function(module, batch)
        finally:
            for part in training:
                part.training = True

    return measured


def unused_in(
    template: nn.Module, function: Callable[[nn.Module, Batch], Any], parameters: State, buffers: State, batch: Batch
) -> set[str]:
    """Parameters whose `grad` stays `None` in PyTorch, whose optimizers pass over them; by the first training."""
    at, own_buffers, own_batch = ({k: v[:1].detach() for k, v in part.items()} for part in (parameters, buffers, batch))
    with torch.enable_grad():
        at = {name: value.requires_grad_() for name, value in at.items()}
        loss = numbers_of("loss", over_lanes(template, function)(at, own_buffers, own_batch))
        gradients = gradients_of("loss", loss, at, materialize=False)
    return {name for name, gradient in gradients.items() if gradient is None}


def parted(template: nn.Module, state: State) -> tuple[State, State]:
    """Splits a module's state into parameters, in the module's order, and buffers."""
    parameters = {name: state[name] for name, _ in template.named_parameters()}
    return parameters, {name: value for name, value in state.items() if name not in parameters}


def over_lanes(
    template: nn.Module, function: Callable[[nn.Module, Batch], Any]
) -> Callable[[State, State, Batch], Any]:
    """Maps a function of one training over the first axis of parameters, buffers and batch; a `SpecError` where `vmap`
    cannot."""
    mapped = vmap(one_lane(template, function))

    def vectorized(parameters: State, buffers: State, batch: Batch) -> Any:
        with told_to_users():
            return mapped(parameters, buffers, batch)

    def padded(parameters: State, buffers: State, batch: Batch) -> Any:
        if next(iter(parameters.values())).shape[0] > 1:
            return vectorized(parameters, buffers, batch)
        # A single training is computed twice: alone, products and sums take other kernels and round differently.
        twice = [
            {name: value.repeat_interleave(2, 0) for name, value in tensors.items()}
            for tensors in (parameters, buffers, batch)
        ]
        return tree_map(lambda value: value[:1], vectorized(*twice))

    return padded


def to_numpy(values: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    """One real number per training and name, as float64 arrays on the CPU."""
    numbers = [numbers_of(name, value).detach().to(torch.float64) for name, value in values.items()]
    # One copy: the host waits for the device at each.
    copies = torch.cat(numbers).cpu().split([value.shape[0] for value in numbers])
    return {name: copy.numpy() for name, copy in zip(values, copies, strict=True)}


def numbers_of(name: str, values: Tensor) -> Tensor:
    """`values`, if they are one real number per training; else a `TypeError`."""
    if values.dim() != 1 or values.is_complex():
        raise TypeError(
            f"{name}: got {str(values.dtype).removeprefix('torch.')} of shape {tuple(values.shape[1:])} for each "
            "training, expected one real number per training; reduce the tensor with .mean(), or with .abs() if it is"
            " complex"
        )
    return values


def loss_and_gradient(name: str, loss: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Each training's loss, detached, and its gradient with respect to the training's row."""
    return loss.detach(), gradients_of(name, numbers_of(name, loss), {ROWS: rows})[ROWS]


def gradients_of(name: str, loss: Tensor, at: State, *, materialize: bool = True) -> State:
    """The gradients of a loss, of one training or several, with respect to `at`; where none flows 0, or `None` without
    `materialize`."""
    if not loss.requires_grad:
        expected = "a loss whose gradient PyTorch can compute"
        fix = "compute it from parameters that require gradients, without detach(), no_grad(), argmax or a comparison"
        raise SpecError(name, given="a value that no parameter of the module changes", expected=expected, fix=fix)
    # A training's loss depends on its own weights alone, so the summed loss has the same gradient.
    try:
        gradients = torch.autograd.grad(loss.sum(), list(at.values()), materialize_grads=materialize, allow_unused=True)
    except RuntimeError as error:
        refusal = refusal_of(error, f"the gradient of {name}")
        if refusal is None:
            raise
        raise refusal from error
    return dict(zip(at, gradients, strict=True))


def n_operations_behind(loss: Tensor) -> int:
    """Counts the operations through which a gradient flows back from a loss."""
    seen, ahead = set(), [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            ahead += [source for source, _ in node.next_functions]
    return len(seen)
