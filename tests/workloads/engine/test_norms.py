"""Norms per lane, which clipping and gamma use; their rounding must not depend on a lane's place."""

import os

import pytest
import torch

import attnsweep.workloads
from attnsweep.workloads.engine.first_order import norm_per_lane


@pytest.mark.parametrize("n_lanes", [1, 2, 5])
def test_a_norm_over_many_tensors_does_not_round_by_the_pack(n_lanes: int) -> None:
    draw = torch.Generator().manual_seed(0)
    state = {str(index): torch.randn(33, 4, 3, generator=draw) for index in range(12)}
    part = norm_per_lane({name: value[:n_lanes] for name, value in state.items()})
    assert torch.equal(part, norm_per_lane(state)[:n_lanes])
    whole = torch.cat([value.flatten(1) for value in state.values()], dim=1)
    torch.testing.assert_close(norm_per_lane(state), whole.norm(dim=1))


def test_products_are_told_not_to_round_by_alignment() -> None:
    assert attnsweep.workloads.__doc__
    assert os.environ["MKL_CBWR"]
