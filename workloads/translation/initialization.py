"""What a translator starts from by default: Xavier's uniform law, as the thesis. Axes: L lane."""

import math

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams


def starting_parameters(module: nn.Module, init_sigma_L: Tensor, streams: Streams) -> State:
    """(L, ...) by name: matrices N(0, init_sigma^2) where it is given, else uniform on +-sqrt(6 / (rows + columns)).

    Biases start at 0, gains of layer norms at 1, either way. Source: Glorot & Bengio 2010, equation 16, for every
    matrix, embeddings too (`torch.nn.init.xavier_uniform_` where a parameter has two axes).

    Args:
        module: Of ONE training.
        init_sigma_L: (L,) NaN for Xavier's law.
        streams: Of the trainings.
    """
    gaussian = draw_parameters(module, init_sigma_L.nan_to_num(0.0), streams)
    if not init_sigma_L.isnan().any():
        return gaussian
    found = {}
    for name, built in module.named_parameters():
        value = gaussian[name]
        if built.dim() >= 2:
            bound = math.sqrt(6.0 / (built.shape[0] + built.shape[1]))
            uniform = bound * (2.0 * streams.uniform(f"init/{name}", tuple(built.shape)) - 1.0)
            value = torch.where(init_sigma_L.isnan().view(-1, 1, 1), uniform.to(value.dtype), value)
        found[name] = value
    return found
