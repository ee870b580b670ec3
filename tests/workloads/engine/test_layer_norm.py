"""LayerNorm with an epsilon per training, in three operations, against the formula."""

import pytest
import torch

from workloads.engine.layer_norm import fused_layer_norm, inverse_root, layer_norm


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_has_no_variance_becomes_the_bias(dtype: torch.dtype) -> None:
    value = torch.zeros(2, 8, dtype=dtype, requires_grad=True)
    bias = torch.arange(8, dtype=dtype)
    normal = fused_layer_norm(value, torch.ones(8, dtype=dtype), bias, inverse_root(torch.tensor(0.0, dtype=dtype)))
    assert torch.equal(normal, bias.expand(2, 8))
    (gradient,) = torch.autograd.grad((normal * bias).sum(), value)
    assert torch.isfinite(gradient).all()
