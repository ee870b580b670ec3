"""The encoder against PyTorch's own, and its two shortcuts against the plain computation."""

import pytest
import torch
from torch import Tensor

from attnsweep.workloads.formal_languages.encoder import ENCODER_SCALES, Encoder
from attnsweep.workloads.formal_languages.language import Tokens
from tests.workloads.formal_languages.strings import random_encoder, random_strings, tokens
from tests.workloads.formal_languages.torch_encoder import TorchEncoder


def _gradients(encoder: Encoder, read: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    logit = encoder(read)
    weights = torch.linspace(-1.0, 1.0, logit.numel(), dtype=torch.float64)
    names = dict(encoder.named_parameters())
    gradients = torch.autograd.grad((logit * weights).sum(), list(names.values()), materialize_grads=True)
    return logit.detach(), dict(zip(names, gradients, strict=True))


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("layer_norm_eps", [1e-5, 0.1])
def test_outputs_and_gradients_are_those_of_torch(n_layers: int, n_heads: int, layer_norm_eps: float) -> None:
    encoder = random_encoder(layer_norm_eps=layer_norm_eps, n_layers=n_layers, n_heads=n_heads, n_position_features=2)
    read = tokens("parity", random_strings(5, 7), "positions")
    logit, gradients = _gradients(encoder, read)
    reference = TorchEncoder(encoder, "inv_sqrt_d", 8)
    expected = reference(read.feature_BTF)
    (expected * torch.linspace(-1.0, 1.0, 5, dtype=torch.float64)).sum().backward()
    torch.testing.assert_close(logit, expected.detach(), rtol=1e-6, atol=1e-6)
    theirs = reference.gradients()
    assert theirs.keys() == gradients.keys()
    for name, value in gradients.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-6, atol=1e-6, msg=f"{name}: {{}}".format)


@pytest.mark.parametrize("attention_scale", ENCODER_SCALES)
@pytest.mark.parametrize("has_layer_norm", [True, False])
@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_kinds_with_counts_are_the_plain_computation(attention_scale: str, has_layer_norm: bool, length: int) -> None:
    encoder = random_encoder(attention_scale, n_heads=2, n_layers=3, has_layer_norm=has_layer_norm)
    text = random_strings(6, length)
    plain, plain_gradients = _gradients(encoder, tokens("first", text, "positions"))
    short, gradients = _gradients(encoder, tokens("first", text, "kinds"))
    torch.testing.assert_close(short, plain, rtol=1e-12, atol=1e-12)
    for name, value in gradients.items():
        scale = plain_gradients[name].abs().max().item() + 1.0
        torch.testing.assert_close(value, plain_gradients[name], rtol=1e-11, atol=1e-12 * scale)
