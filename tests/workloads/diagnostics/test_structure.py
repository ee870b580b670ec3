"""Exact distances to structured families: members, brute force, monotony, invariance. Axes: T token."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnsweep.workloads.diagnostics.shuffles import permutation_test
from attnsweep.workloads.diagnostics.structure import (
    band_support,
    best_blocks,
    blocks_with_free_entries,
    checked_attention,
    distances_to_bands,
    distances_to_blocks,
    distances_to_diagonal,
    support_with_free_entries,
)
from attnsweep.workloads.errors import UserError
from tests.refusals import refused


def random_heads(seed: int, *shape: int, sharpness: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(*shape, generator=generator, dtype=torch.float64)).softmax(-1)


def placements(T: int, w: int, p: int, *, any_column: bool) -> list[Tensor]:
    """Every support of Sigma_3(w, p)."""
    supports = []
    for starts in itertools.combinations(range(T - w + 1), p):
        if any(later - start < w for start, later in itertools.pairwise(starts)):
            continue
        for shifts in itertools.product(range(w if any_column else 1), repeat=p):
            support = torch.eye(T, dtype=torch.float64)
            for start, shift in zip(starts, shifts, strict=True):
                support[start : start + w] = 0.0
                support[start : start + w, start + shift] = 1.0
            supports.append(support)
    return supports


def distance_to_support(attention: Tensor, support: Tensor) -> Tensor:
    """Rows that must sum to 1 on their support: mass outside is removed, and missing mass is added."""
    mass = (attention * support).sum(-1)
    return (attention.sum(-1) - mass + (1.0 - mass).abs()).sum(-1)


def brute_force(head: Tensor, supports: list[Tensor], n_free: int = 0) -> float:
    """The least distance over all supports and all choices of at most `n_free` further places."""
    T = head.shape[0]
    best = float("inf")
    for support in supports:
        outside = [place for place in itertools.product(range(T), repeat=2) if not support[place]]
        for free in itertools.combinations(outside, min(n_free, len(outside))):
            wider = support.clone()
            for place in free:
                wider[place] = 1.0
            best = min(best, distance_to_support(head, wider).item())
    return best


def nearest_by_search(row: np.ndarray, support: list[int], steps: int = 40) -> float:
    """The distance of one row, by brute force over a grid of rows with at most three nonzero places."""
    best = float("inf")
    for parts in itertools.product(range(steps + 1), repeat=len(support) - 1):
        if sum(parts) <= steps:
            member = np.zeros_like(row)
            member[support] = np.array([*parts, steps - sum(parts)]) / steps
            best = min(best, float(np.abs(row - member).sum()))
    return best


@pytest.mark.parametrize("row_sum", [1.0, 1.1, 0.7])
def test_the_cost_of_a_row_is_the_least_over_a_grid_of_members(row_sum: float) -> None:
    head = random_heads(1, 4, 4) * row_sum
    support = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]], dtype=torch.float64)
    searched = sum(
        nearest_by_search(row.numpy(), np.flatnonzero(places.numpy()).tolist())
        for row, places in zip(head, support, strict=True)
    )
    exact = distance_to_support(head, support).item()
    assert exact <= searched + 1e-12
    assert searched == pytest.approx(exact, abs=0.15)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), T=st.integers(1, 9), window=st.integers(0, 8))
def test_members_are_at_distance_0(seed: int, T: int, window: int) -> None:
    eye = torch.eye(T, dtype=torch.float64)
    assert distances_to_diagonal(eye) == 0
    band = random_heads(seed, T, T) * band_support(T, window)
    found = distances_to_bands(band / band.sum(-1, keepdim=True))
    assert found[min(window, T - 1) :].abs().max() < 1e-12
    w = min(window + 1, T)
    for any_column in (False, True):
        supports = placements(T, w, 1, any_column=any_column)
        exact = distances_to_blocks(torch.stack(supports), any_column=any_column)
        assert exact[:, w - 1, 1].abs().max() < 1e-12


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), T=st.integers(2, 10))
def test_wider_bands_are_nearer_and_contain_the_other_families(seed: int, T: int) -> None:
    heads = random_heads(seed, 3, T, T)
    bands = distances_to_bands(heads)
    assert (bands.diff(dim=-1) <= 1e-12).all()
    assert bands[:, -1].abs().max() < 1e-12
    assert torch.allclose(bands[:, 0], distances_to_diagonal(heads))
    blocks = distances_to_blocks(heads, any_column=True)
    for w in range(1, T + 1):
        assert (blocks[:, w - 1].min(-1).values >= bands[:, w - 1] - 1e-12).all()


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), T=st.integers(1, 6), any_column=st.booleans(), row_sum=st.sampled_from([1.0, 1.1]))
def test_blocks_are_placed_as_brute_force_does(seed: int, T: int, any_column: bool, row_sum: float) -> None:
    head = row_sum * random_heads(seed, T, T)
    found = distances_to_blocks(head, any_column=any_column)
    assert found.shape == (T, T + 1)
    for w, p in itertools.product(range(1, T + 1), range(T + 1)):
        if w * p > T:
            assert found[w - 1, p] == torch.inf
            continue
        supports = placements(T, w, p, any_column=any_column)
        assert found[w - 1, p].item() == pytest.approx(brute_force(head, supports), abs=1e-12)
        best = best_blocks(head, w, p, any_column=any_column)
        assert best.distance.item() == pytest.approx(found[w - 1, p].item(), abs=1e-12)
        support = torch.eye(T, dtype=torch.float64)
        for start, column in zip(best.starts.tolist(), best.columns.tolist(), strict=True):
            support[start : start + w] = 0.0
            support[start : start + w, column] = 1.0
        assert any(torch.equal(support, each) for each in supports)
        assert distance_to_support(head, support).item() == pytest.approx(best.distance.item(), abs=1e-12)


@pytest.mark.parametrize("row_sum", [1.0, 1.11, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_free_entries_beside_a_support_are_chosen_as_brute_force_does(seed: int, row_sum: float) -> None:
    head = row_sum * random_heads(seed, 4, 4)
    for window in range(3):
        support = band_support(4, window).double()
        found = support_with_free_entries(head, support, 4)
        for n_free in range(5):
            assert found[n_free].item() == pytest.approx(brute_force(head, [support], n_free), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("any_column", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_free_entries_and_blocks_are_chosen_together(seed: int, any_column: bool) -> None:
    head = random_heads(seed, 4, 4, sharpness=2.0)
    for w, p in [(1, 0), (2, 1), (2, 2), (3, 1), (4, 1)]:
        found = blocks_with_free_entries(head.expand(2, 4, 4), w, p, 3, any_column=any_column)
        supports = placements(4, w, p, any_column=any_column)
        for n_free in range(4):
            expected = brute_force(head, supports, n_free)
            assert found[:, n_free].tolist() == pytest.approx([expected, expected], abs=1e-12)


def test_the_permutation_test_finds_structure_and_no_more() -> None:
    T = 12
    planted = torch.eye(T, dtype=torch.float64).roll(1, 0) * 0.8 + 0.2 / T
    noise = random_heads(3, 200, T, T)

    def nearest_band(heads: Tensor) -> Tensor:
        return distances_to_bands(heads)[..., 1]

    assert permutation_test(planted, nearest_band).z < -4
    z = permutation_test(noise, nearest_band).z
    assert abs(z.mean()) < 0.3
    assert 0.7 < z.std() < 1.3
    assert permutation_test(torch.full((T, T), 1 / T, dtype=torch.float64), nearest_band).z.isnan()
    masked = noise.tril() / noise.tril().sum(-1, keepdim=True)
    assert permutation_test(masked, nearest_band).z.mean() < -1  # The mask alone is structure,
    z = permutation_test(masked, nearest_band, is_causal=True).z  # unless it is known.
    assert abs(z.mean()) < 0.3
    assert 0.7 < z.std() < 1.3


@pytest.mark.parametrize(
    ("matrices", "subject"),
    [
        (torch.eye(3) * 1.1, "attention"),
        (torch.full((2, 2), torch.nan), "attention"),
        (torch.eye(2) * 2 - 0.5, "attention"),
        (torch.ones(2, 3), "attention"),
        (torch.ones(3), "attention"),
        (torch.eye(2).bool(), "attention"),
    ],
)
def test_what_is_no_attention_matrix_is_refused(matrices: Tensor, subject: str) -> None:
    with refused(subject, UserError):
        checked_attention(matrices)
