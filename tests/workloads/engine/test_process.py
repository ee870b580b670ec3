"""The settings that make the last bits of a training independent of its place in a pack."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from attnsweep.workloads.engine.process import processor, training_settings


def _placed(value: Tensor, offset: int) -> Tensor:
    """A copy that begins `offset` numbers after an address that is a multiple of 64 bytes."""
    memory = torch.empty(value.numel() + 64, dtype=value.dtype)
    start = (-memory.data_ptr() % 64) // value.element_size() + offset
    return memory[start : start + value.numel()].view_as(value).copy_(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(1024, 64, 64), (512, 32, 32), (16, 16, 32), (17, 8, 17), (33, 7, 5), (1, 32, 32)])
def test_a_product_rounds_alike_wherever_its_matrices_lie(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    m, n, k = sizes
    a, b, c = (torch.randn(shape, dtype=dtype) for shape in ((m, k), (n, k), (n,)))
    alone, batched = torch.addmm(c, a, b.T), torch.bmm(a.repeat(2, 1, 1), b.T.repeat(2, 1, 1))[0]
    for of_a, of_b in ((0, 1), (1, 0), (3, 5), (8, 4), (15, 15)):
        assert torch.equal(torch.addmm(c, _placed(a, of_a), _placed(b, of_b).T), alone)
    for n_lanes in (3, 28):
        products = torch.bmm(_placed(a.repeat(n_lanes, 1, 1), 3), b.T.repeat(n_lanes, 1, 1))
        assert torch.equal(products, batched.expand_as(products))


def test_the_type_of_machine_names_the_branch_of_mkl() -> None:
    if ", MKL " not in processor():
        pytest.skip("this PyTorch has no MKL")
    program = "import attnsweep; from attnsweep.workloads.engine.process import processor; print(processor())"
    environment = {**os.environ, "MKL_CBWR": "COMPATIBLE"}
    other = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == f"{processor().partition(', MKL ')[0]}, MKL 3"


def test_a_notebooks_precision_of_products_does_not_reach_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    monkeypatch.setattr(products, "fp32_precision", "bf16")
    with training_settings():
        assert products.fp32_precision == "ieee"
    assert products.fp32_precision == "bf16"
