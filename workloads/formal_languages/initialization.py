"""What an encoder starts from by default: PyTorch's own. Axes: L lane."""

import math
import re

import torch
from torch import Tensor

from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.formal_languages.encoder import Encoder


def default_parameters(module: Encoder, streams: Streams) -> State:
    """Starting parameters (L, *shape) by name, float64, distributed as PyTorch's.

    As `nn.Embedding` N(0, 1); as `nn.MultiheadAttention` Xavier-uniform for queries, keys and values together, its
    biases 0; as `nn.Linear` uniform on +-1/sqrt(fan_in), biases too; LayerNorm's gains 1 and biases 0. All layers of
    a training start alike: `nn.TransformerEncoder` makes copies of one.
    """
    D, W = module.shape.d_model, module.shape.d_ffn
    bounds = {
        "in_weight_DE": math.sqrt(6.0 / (3 * D + D)),
        "out_weight_DD": D**-0.5,
        "first_weight_DW": D**-0.5,
        "first_bias_W": D**-0.5,
        "second_weight_WD": W**-0.5,
        "second_bias_D": W**-0.5,
        "answer_weight_D1": D**-0.5,
        "answer_bias_1": D**-0.5,
    }
    return {
        name: _drawn(name, value.detach().to(torch.float64), bounds, streams)
        for name, value in module.named_parameters()
    }


def _drawn(name: str, built: Tensor, bounds: dict[str, float], streams: Streams) -> Tensor:
    stream = re.sub(r"^layers\.\d+\.", "layers.", f"{name}")
    own_name = name.rpartition(".")[2]
    shape = tuple(built.shape)
    if own_name == "symbol_SD":
        return streams.normal(f"init/{stream}", shape)
    if own_name in bounds:
        return bounds[own_name] * (2.0 * streams.uniform(f"init/{stream}", shape) - 1.0)
    return built.expand(streams.n_lanes, *shape)
