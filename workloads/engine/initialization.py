"""Draws the initial parameters: from a normal distribution with the standard deviation `init_sigma`, or as the module
initializes itself. Axes: L training."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams


class DrawnByEngine:
    """A mixin for layers that the engine initializes even if the module's other layers initialize themselves."""


StartingLaw = Callable[[str, tuple[int, ...]], Tensor | None]
"""The signature of an initialization: from name and shape it draws a parameter in float64, with trainings as first
axis; `None` keeps the values from `build`."""


def draw_parameters(
    module: nn.Module,
    init_sigma: Tensor,
    streams: Streams,
    built: Mapping[str, Tensor] | None = None,
    law: StartingLaw | None = None,
) -> State:
    """Draws the initial parameters of all trainings. Matrices have the standard deviation `init_sigma`. Where it is
    NaN, the module's own initialization or that of PyTorch's layers takes its place.

    Where `init_sigma` is a number, matrices (two axes or more) are drawn from the random streams `init/<parameter
    name>`, and vectors (biases, layer-norm gains) keep the values from `build`.

    Trainings whose `init_sigma` is NaN keep the values from `build` if the module initializes itself, that is, if one
    of its matrices is not 0. Otherwise, and in layers that are `DrawnByEngine`, they are initialized like PyTorch's
    layers, drawn from the same streams: embeddings from N(0, 1); other matrices, and biases of `nn.Linear`, uniformly
    from +-1/sqrt(fan_in).

    Args:
        init_sigma: A standard deviation per training, NaN for the module's own initialization.
        built: The values by name from `build`, with trainings as first axis; `None` if all modules were built with the
            values of `module`.
        law: The initialization of trainings whose `init_sigma` is NaN, in place of the one described above.

    Returns:
        Tensors (n_trainings, *shape) by parameter name. A parameter with several names (tied) is returned under the
            first.
    """
    owners = {
        name: module.get_submodule(name.rpartition(".")[0])
        for name, value in module.named_parameters()
        if value.is_floating_point()
    }
    if built is None:
        n_lanes = init_sigma.shape[0]
        built = {name: value.detach().expand(n_lanes, *value.shape) for name, value in module.named_parameters()}
    has_own_L = torch.zeros_like(init_sigma, dtype=torch.bool)
    if init_sigma.isnan().any():
        for value in (built[name] for name in owners):
            if value.dim() > 2:
                has_own_L |= value.flatten(1).ne(0).any(1)
    return {
        name: _draw(name, built[name], init_sigma, law or _default_law(owner, built[name], has_own_L, streams), streams)
        for name, owner in owners.items()
    }


def _draw(name: str, built: Tensor, init_sigma: Tensor, law: StartingLaw, streams: Streams) -> Tensor:
    shape = tuple(built.shape[1:])
    sigma, values = init_sigma.view(-1, *[1] * len(shape)), built.to(init_sigma)
    drawn = sigma * streams.normal(f"init/{name}", shape) if len(shape) >= 2 else values
    if init_sigma.isnan().any():
        default = law(name, shape)
        drawn = torch.where(torch.isnan(sigma), values if default is None else default, drawn)
    return drawn.to(built.dtype).clone()


def _default_law(owner: nn.Module, built: Tensor, has_own_L: Tensor, streams: Streams) -> StartingLaw:
    """Returns how trainings without `init_sigma` are initialized. Weights that the user's module initializes itself
    keep their values; all others are drawn as in PyTorch's layers."""

    def law(name: str, shape: tuple[int, ...]) -> Tensor | None:
        if isinstance(owner, nn.Embedding):
            default = streams.normal(f"init/{name}", shape)
        elif len(shape) >= 2 or isinstance(owner, nn.Linear):
            fan_in = owner.in_features if isinstance(owner, nn.Linear) else shape[-1]
            default = (2.0 * streams.uniform(f"init/{name}", shape) - 1.0) / math.sqrt(fan_in)
        else:
            return None
        if isinstance(owner, DrawnByEngine):
            return default
        return torch.where(has_own_L.view(-1, *[1] * len(shape)), built.to(default), default)

    return law
