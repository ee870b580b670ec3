"""Draws initial parameters: N(0, `init_sigma`^2), or as the module initializes itself. Axes: L training."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams


class DrawnByEngine:
    """A mixin: parameters of the module that `build` leaves all 0 are drawn by the engine, like PyTorch's layers."""


StartingLaw = Callable[[str, tuple[int, ...]], Tensor | None]
"""From a parameter's name and shape its values in float64, (L, *shape); `None` keeps what `build` gave."""


def draw_parameters(
    module: nn.Module,
    init_sigma: Tensor,
    streams: Streams,
    built: Mapping[str, Tensor] | None = None,
    law: StartingLaw | None = None,
) -> State:
    """Initial parameters: (L, *shape) by name, tied ones under their first.

    Where `init_sigma` is a number, matrices (two axes or more) that learn are N(0, init_sigma^2), from the streams
    `init/<parameter name>`. Where it is NaN, `law` draws; without one only the zeros of modules that are
    `DrawnByEngine` are drawn, from the same streams like PyTorch's layers: embeddings from N(0, 1); other matrices, and
    biases of `nn.Linear`, uniformly from +-1/sqrt(fan_in). All else keeps the values `built`, by default `module`'s.
    """
    if built is None:
        n_lanes = init_sigma.shape[0]
        built = {name: value.detach().expand(n_lanes, *value.shape) for name, value in module.named_parameters()}
    drawn: State = {}
    for name, value in module.named_parameters():
        if value.is_floating_point():
            owner, values = module.get_submodule(name.rpartition(".")[0]), built[name].to(init_sigma)
            is_left_L = values.eq(0).unsqueeze(-1).flatten(1).all(1) & isinstance(owner, DrawnByEngine)
            is_own_L, start = init_sigma.isnan(), values
            if is_own_L.any():
                own = _start(owner, name, values, is_left_L, law, streams)
                start = torch.where(_per_lane(is_own_L, value), own, values)
            if value.dim() >= 2 and not is_own_L.all():
                normal = _per_lane(init_sigma, value) * streams.normal(f"init/{name}", tuple(value.shape))
                start = torch.where(_per_lane(~is_own_L & (is_left_L | value.requires_grad), value), normal, start)
            drawn[name] = start.to(value.dtype).clone()
    return drawn


def _start(
    owner: nn.Module, name: str, built: Tensor, is_left_L: Tensor, law: StartingLaw | None, streams: Streams
) -> Tensor:
    shape = tuple(built.shape[1:])
    if law is not None:
        own = law(name, shape)
        return built if own is None else own
    if isinstance(owner, nn.Embedding):
        default = streams.normal(f"init/{name}", shape)
    elif len(shape) >= 2 or isinstance(owner, nn.Linear):
        fan_in = owner.in_features if isinstance(owner, nn.Linear) else shape[-1]
        default = (2.0 * streams.uniform(f"init/{name}", shape) - 1.0) / math.sqrt(fan_in)
    else:
        return built
    return torch.where(_per_lane(is_left_L, built[0]), default, built)


def _per_lane(values: Tensor, of_one: Tensor) -> Tensor:
    return values.view(-1, *[1] * of_one.dim())
