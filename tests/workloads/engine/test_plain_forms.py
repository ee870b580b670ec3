"""The plain forms compute what PyTorch's fused operations do, and their gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from attnsweep.workloads.engine.engine_forms import without_dropout
from attnsweep.workloads.engine.plain_forms import fused_layer_norm, inverse_root, layer_norm

X = torch.linspace(-1, 1, 60, dtype=torch.float64).view(3, 5, 4)
SEEN = torch.ones(5, 5, dtype=torch.bool).tril(-1)
"""The first token sees none."""


def _attended(**options: Any) -> Callable[[], Tensor]:
    q = X.view(3, 5, 2, 2).transpose(1, 2)
    return lambda: scaled_dot_product_attention(q.sin(), q, q.cos(), **options)


def _of_groups() -> Tensor:
    q, k, v = (X.view(3, 1, 5, 4).expand(3, n_heads, 5, 4) for n_heads in (4, 2, 2))
    return scaled_dot_product_attention(q.sin(), k, v.cos(), enable_gqa=True)


ATTENTION = {
    "plain": _attended(),
    "causal": _attended(is_causal=True),
    "scaled": _attended(scale=3.0),
    "a mask": _attended(attn_mask=SEEN),
    "a sum": _attended(attn_mask=torch.zeros(5, 5, dtype=torch.float64).masked_fill(~SEEN, -torch.inf)),
    "groups": _of_groups,
}


@pytest.mark.parametrize("attend", ATTENTION.values(), ids=ATTENTION)
def test_attention(attend: Callable[[], Tensor]) -> None:
    with without_dropout() as forms:
        found = attend()
    assert forms.replaced == {"scaled_dot_product_attention"}
    torch.testing.assert_close(found, attend(), rtol=1e-12, atol=1e-12)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2, dropout=0.3),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(4, 2, 6, batch_first=True),
}


@pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)
def test_layers(build: Callable[[], nn.Module]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = build().double()
    given = (X,) * 3 if isinstance(layer, nn.MultiheadAttention) else (X,)

    def results() -> list[Tensor]:
        found = layer(*given)
        flat = [found] if isinstance(found, Tensor) else list(found)
        return [*flat, *torch.autograd.grad(flat[0].square().sum(), list(layer.parameters()))]

    with without_dropout() as forms:
        plain = results()
    assert forms.replaced
    layer.eval()
    for one, other in zip(plain, results(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5, 1e-1, 10.0])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_it_is_layer_norm(dtype: torch.dtype, tolerance: float, eps: float, size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    value = (size * (torch.randn(7, 16, generator=generator, dtype=torch.float64) + 0.3)).to(dtype).requires_grad_()
    gain, bias = torch.randn(2, 16, generator=generator).to(dtype)
    epsilon = torch.tensor(eps, dtype=dtype)
    fused = fused_layer_norm(value, gain, bias, inverse_root(epsilon))
    plain = layer_norm(value.double(), gain.double(), bias.double(), epsilon.double())
    torch.testing.assert_close(fused.double(), plain, rtol=tolerance, atol=tolerance)
    weights = torch.randn(7, 16, generator=generator).to(dtype)
    ours, theirs = (torch.autograd.grad((each * weights).sum(), value)[0] for each in (fused, plain))
    scale = theirs.abs().max().item()
    torch.testing.assert_close(ours, theirs, rtol=100 * tolerance, atol=100 * tolerance * scale)
