"""The starting values of parameters: N(0, init_sigma^2) per lane, or the framework's default. Axes: L lane."""

import math

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams


def draw_parameters(module: nn.Module, init_sigma: Tensor, streams: Streams) -> State:
    """Starting parameters of all lanes, drawn from the streams `init/<parameter name>`.

    Matrices (two axes or more) are drawn; vectors (biases, layer-norm gains) keep the value `module` was built
    with, except the biases of `nn.Linear` under the default. The default, for lanes whose `init_sigma` is NaN, is
    PyTorch's: N(0, 1) for embeddings, uniform on +-1/sqrt(fan_in) for the rest.

    Args:
        module: The module of ONE training; gives names, shapes, types and the values that are not drawn.
        init_sigma: (L,) standard deviations, NaN for the framework's default.
        streams: The random streams of the L trainings.

    Returns:
        Tensors of shape (L, *shape) by parameter name.
    """
    drawn: State = {}
    for module_name, owner in module.named_modules():
        for own_name, parameter in owner.named_parameters(recurse=False):
            name = f"{module_name}.{own_name}" if module_name else own_name
            drawn[name] = _draw(owner, name, parameter, init_sigma, streams)
    return drawn


def _draw(owner: nn.Module, name: str, parameter: Tensor, init_sigma: Tensor, streams: Streams) -> Tensor:
    shape = tuple(parameter.shape)
    sigma_L = init_sigma.view(-1, *[1] * len(shape))
    built = parameter.detach().to(init_sigma).expand(init_sigma.shape[0], *shape)
    is_drawn = len(shape) >= 2
    gaussian = sigma_L * streams.normal(f"init/{name}", shape) if is_drawn else built
    value = gaussian
    if torch.isnan(init_sigma).any():
        if isinstance(owner, nn.Embedding):
            default = streams.normal(f"init/{name}", shape)
        elif is_drawn or isinstance(owner, nn.Linear):
            fan_in = owner.in_features if isinstance(owner, nn.Linear) else shape[-1]
            default = (2.0 * streams.uniform(f"init/{name}", shape) - 1.0) / math.sqrt(fan_in)
        else:
            default = built
        value = torch.where(torch.isnan(sigma_L), default, gaussian)
    return value.to(parameter.dtype).clone()
