"""Each lane follows `torch.optim` run alone, with a learning rate of its own."""

import pytest
import torch

from workloads.engine.optimizers import OPTIMIZERS

REFERENCES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def _loss(x: torch.Tensor) -> torch.Tensor:
    return ((x[1:] - x[:-1] ** 2) ** 2 + 0.1 * (1 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_lane_follows_torch_run_alone(name: str) -> None:
    learning_rates = [1e-3, 1e-2, 3e-2]
    start = torch.linspace(-0.5, 0.5, 15, dtype=torch.float64).reshape(3, 5)
    fused = start.clone()
    optimizer = OPTIMIZERS[name](torch.tensor(learning_rates, dtype=torch.float64))
    for step in range(60):
        if step == 30:
            kept = torch.tensor([2, 0])
            optimizer.select(kept)
            fused = fused[kept]
        gradients = torch.stack([torch.func.grad(_loss)(lane) for lane in fused])
        optimizer.step({"x": fused}, {"x": gradients})
    for lane, origin in enumerate([2, 0]):
        alone = start[origin].clone().requires_grad_()
        reference = REFERENCES[name]([alone], lr=learning_rates[origin])
        for _ in range(60):
            reference.zero_grad()
            _loss(alone).backward()
            reference.step()
        torch.testing.assert_close(fused[lane], alone.detach(), rtol=1e-12, atol=1e-14)
