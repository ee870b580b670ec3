"""The search finds the families of docs/theory.md, and nothing else."""

import pytest
import torch

from attnsweep.reproduction.shin.stationary import (
    family_of_categories_only,
    family_of_positions_only,
    find_stationary_points,
)
from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.outcomes import reference_levels
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from tests.workloads.diagnostics.lanes import system_lanes


@pytest.mark.scale
@pytest.mark.slow
def test_stationary_points_of_positions_only() -> None:
    system = PositionsOnly(3, 4, softmax=False)
    found = find_stationary_points(*system_lanes(system, 60, sigma=1.2))
    family = family_of_positions_only(found, system.double().reference_levels())
    index = {"solution": 0, "centred_shift": 1, "mean": 1, "zero": 2}
    seen = {(str(name), int(i)) for name, i in zip(family[found.converged], found.index[found.converged], strict=True)}
    assert seen == set(index.items())
    assert found.converged.sum() > 45


@pytest.mark.slow
def test_stationary_points_of_categories_only() -> None:
    system = CategoriesOnly(3, 4, softmax=False)
    objective, start = system_lanes(system, 60, sigma=1.5)
    found = find_stationary_points(objective, start)
    target = objective.buffers["target_NN"]
    levels = torch.vmap(reference_levels)(target) | {"marginal": target.var(dim=1, correction=0).mean(1)}
    family = family_of_categories_only(found, levels)
    index = {"solution": {0}, "marginal": {1}, "zero": {3}, "zero_row_sums": {1, 2}, "zero_diagonal": {1, 2}}
    seen = {(str(name), int(i)) for name, i in zip(family[found.converged], found.index[found.converged], strict=True)}
    assert {name for name, _ in seen} == set(index)
    assert all(i in index[name] for name, i in seen)
    assert found.converged.sum() > 45
