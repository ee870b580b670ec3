"""Starting parameters: N(0, init_sigma^2), or the module's own where init_sigma is null."""

import math

import torch
from torch import nn

from attnsweep.workloads.attention.layers import Embedding, Linear, sinusoids
from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.streams import Streams

NAN = float("nan")


def _draw(module: nn.Module, *init_sigma: float) -> dict[str, torch.Tensor]:
    return draw_parameters(module, torch.tensor(init_sigma).double(), Streams(torch.arange(len(init_sigma))))


def test_a_module_without_an_initialization_starts_as_pytorchs_layers_do() -> None:
    linear, embedding = Linear(64, 200), Embedding(200, 64)
    weight, bias = _draw(linear, NAN)["weight"], _draw(linear, NAN)["bias"]
    bound = 1 / math.sqrt(64)
    for drawn in (weight, bias):
        assert drawn.abs().max() <= bound
        torch.testing.assert_close(drawn.std().item(), bound / math.sqrt(3), rtol=0.15, atol=0.0)
    torch.testing.assert_close(_draw(embedding, NAN)["weight"].std().item(), 1.0, rtol=0.03, atol=0.0)


def test_what_does_not_learn_keeps_its_values_at_any_sigma() -> None:
    positions = nn.Embedding.from_pretrained(sinusoids(16, 8))
    own = Embedding(16, 8)
    own.weight.data.copy_(sinusoids(16, 8))
    for module in (positions, own.requires_grad_(False)):
        for lane in _draw(module, 0.5, NAN)["weight"]:
            torch.testing.assert_close(lane.double(), sinusoids(16, 8), rtol=1e-6, atol=1e-7)
