"""Starting parameters: N(0, init_sigma^2), or the module's own where init_sigma is null."""

import math

import torch
from torch import nn

from attnsweep.workloads.attention.layers import Embedding, Linear
from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.streams import Streams

NAN = float("nan")


def _draw(module: nn.Module, *init_sigma: float, first_seed: int = 0) -> dict[str, torch.Tensor]:
    sigma = torch.tensor(init_sigma, dtype=torch.float64)
    return draw_parameters(module, sigma, Streams(torch.arange(len(init_sigma)) + first_seed))


def test_matrices_have_the_lanes_own_sigma() -> None:
    drawn = _draw(nn.Linear(100, 100), 0.5, 1e-4)["weight"]
    assert drawn.shape == (2, 100, 100)
    torch.testing.assert_close(drawn.std(dim=(1, 2)), torch.tensor([0.5, 1e-4]), rtol=0.03, atol=0.0)


def test_a_module_without_an_initialization_starts_as_pytorchs_layers_do() -> None:
    linear, embedding = Linear(64, 200), Embedding(200, 64)
    weight, bias = _draw(linear, NAN)["weight"], _draw(linear, NAN)["bias"]
    bound = 1 / math.sqrt(64)
    for drawn in (weight, bias):
        assert drawn.abs().max() <= bound
        torch.testing.assert_close(drawn.std().item(), bound / math.sqrt(3), rtol=0.15, atol=0.0)
    torch.testing.assert_close(_draw(embedding, NAN)["weight"].std().item(), 1.0, rtol=0.03, atol=0.0)


def test_a_matrix_of_zeros_is_drawn_where_all_are() -> None:
    module = nn.ParameterDict({"first": torch.zeros(64, 64), "second": torch.zeros(64, 64)})
    assert _draw(module, NAN)["first"].ne(0).all()
    module["second"] = torch.eye(64)
    drawn = _draw(module, NAN)
    assert torch.equal(drawn["first"][0], torch.zeros(64, 64))
    assert torch.equal(drawn["second"][0], torch.eye(64))


def test_gains_of_1_are_no_initialization() -> None:
    module = nn.ParameterDict({"weight": torch.zeros(4, 4), "gain": torch.ones(4)})
    assert _draw(module, NAN)["weight"].ne(0).all()


def test_whether_a_lane_has_an_initialization_of_its_own_does_not_depend_on_its_neighbours() -> None:
    sigma, streams = torch.tensor([NAN, NAN], dtype=torch.float64), Streams(torch.arange(2))
    module = nn.ParameterDict({"weight": torch.zeros(4, 4)})
    built = torch.stack([torch.zeros(4, 4), torch.eye(4)])
    drawn = draw_parameters(module, sigma, streams, {"weight": built})["weight"]
    assert torch.equal(drawn[0], _draw(module, NAN)["weight"][0])
    assert torch.equal(drawn[1], torch.eye(4))
