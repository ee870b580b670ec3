"""Settings of all tests."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """As in a trainer: on tensors this small, threads cost more than they bring."""
    torch.set_num_threads(1)
