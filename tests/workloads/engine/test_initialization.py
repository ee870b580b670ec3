"""Starting parameters: N(0, init_sigma^2), or PyTorch's default where init_sigma is null."""

import math

import torch
from torch import nn

from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.streams import Streams

NAN = float("nan")


def _draw(module: nn.Module, *init_sigma: float) -> dict[str, torch.Tensor]:
    sigma = torch.tensor(init_sigma, dtype=torch.float64)
    return draw_parameters(module, sigma, Streams(torch.arange(len(init_sigma))))


def test_matrices_have_the_lanes_own_sigma() -> None:
    drawn = _draw(nn.Linear(100, 100), 0.5, 1e-4)["weight"]
    assert drawn.shape == (2, 100, 100)
    torch.testing.assert_close(drawn.std(dim=(1, 2)), torch.tensor([0.5, 1e-4]), rtol=0.03, atol=0.0)


def test_null_is_the_default_of_pytorch() -> None:
    linear, embedding = nn.Linear(64, 200), nn.Embedding(200, 64)
    weight, bias = _draw(linear, NAN)["weight"], _draw(linear, NAN)["bias"]
    bound = 1 / math.sqrt(64)
    for drawn in (weight, bias):
        assert drawn.abs().max() <= bound
        torch.testing.assert_close(drawn.std().item(), bound / math.sqrt(3), rtol=0.15, atol=0.0)
    torch.testing.assert_close(_draw(embedding, NAN)["weight"].std().item(), 1.0, rtol=0.03, atol=0.0)


def test_vectors_keep_what_the_module_was_built_with() -> None:
    norm = nn.LayerNorm(8)
    drawn = _draw(norm, 0.1, NAN)
    assert torch.equal(drawn["weight"], torch.ones(2, 8))
    assert torch.equal(drawn["bias"], torch.zeros(2, 8))


def test_lanes_with_and_without_sigma_share_a_pack() -> None:
    mixed = _draw(nn.Linear(6, 6, bias=False), 0.1, NAN)["weight"]
    alone = draw_parameters(
        nn.Linear(6, 6, bias=False), torch.tensor([NAN], dtype=torch.float64), Streams(torch.tensor([1]))
    )["weight"]
    assert torch.equal(mixed[1], alone[0])
