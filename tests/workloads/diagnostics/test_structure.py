"""Exact distances to structured families: members, brute force, monotony, invariance. Axes: T token."""

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnsweep.workloads.diagnostics.matrices import permutation_test, score_matrices
from attnsweep.workloads.diagnostics.structure import (
    BANDS,
    SCORES,
    PooledStructure,
    band_support,
    best_blocks,
    blocks_with_free_entries,
    distances_to_bands,
    distances_to_blocks,
    distances_to_diagonal,
    support_with_free_entries,
)
from attnsweep.workloads.errors import UserError


def random_heads(seed: int, *shape: int, sharpness: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(*shape, generator=generator, dtype=torch.float64)).softmax(-1)


def blocks_at(T: int, w: int, starts: Iterable[int]) -> Tensor:
    support = torch.eye(T, dtype=torch.float64)
    for start in starts:
        support[start : start + w] = 0.0
        support[start : start + w, start] = 1.0
    return support


def placements(T: int, w: int, p: int) -> list[Tensor]:
    """Every support of Sigma_3(w, p)."""
    chosen = itertools.combinations(range(T - w + 1), p)
    disjoint = (starts for starts in chosen if all(b - a >= w for a, b in itertools.pairwise(starts)))
    return [blocks_at(T, w, starts) for starts in disjoint]


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


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), T=st.integers(2, 10))
def test_wider_bands_are_nearer_down_to_0(seed: int, T: int) -> None:
    heads = random_heads(seed, 3, T, T)
    bands = distances_to_bands(heads)
    assert (bands.diff(dim=-1) <= 1e-12).all()
    assert bands[:, -1].abs().max() < 1e-12
    assert torch.allclose(bands[:, 0], distances_to_diagonal(heads))
    member = heads * band_support(T, 1)
    assert distances_to_bands(member / member.sum(-1, keepdim=True))[:, 1].abs().max() < 1e-12


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), T=st.integers(1, 6), row_sum=st.sampled_from([1.0, 1.1]))
def test_blocks_are_placed_as_brute_force_does(seed: int, T: int, row_sum: float) -> None:
    head = row_sum * random_heads(seed, T, T)
    found = distances_to_blocks(head)
    assert found.shape == (T, T + 1)
    for w, p in itertools.product(range(1, T + 1), range(T + 1)):
        if w * p > T:
            assert found[w - 1, p] == torch.inf
            continue
        supports = placements(T, w, p)
        assert found[w - 1, p].item() == pytest.approx(brute_force(head, supports), abs=1e-12)
        best = best_blocks(head.unsqueeze(0), w, p)
        assert best.distance.item() == pytest.approx(found[w - 1, p].item(), abs=1e-12)
        support = blocks_at(T, w, best.starts[0].tolist())
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
@pytest.mark.parametrize("seed", range(3))
def test_free_entries_and_blocks_are_chosen_together(seed: int) -> None:
    head = random_heads(seed, 4, 4, sharpness=2.0)
    for w, p in [(1, 0), (2, 1), (2, 2), (3, 1), (4, 1)]:
        found = blocks_with_free_entries(head.expand(2, 4, 4), w, p, 3)
        for n_free in range(4):
            expected = brute_force(head, placements(4, w, p), n_free)
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
    "matrices",
    [
        torch.eye(3)[None] * 1.1,
        torch.full((1, 2, 2), torch.nan),
        torch.eye(2)[None] * 2 - 0.5,
        torch.ones(1, 2, 3),
        torch.eye(3),
        torch.eye(2)[None].bool(),
    ],
)
def test_what_is_no_attention_matrix_is_refused(matrices: Tensor) -> None:
    with pytest.raises(UserError) as refused:
        score_matrices(matrices)
    assert refused.value.subject == "attention"


def test_planted_matrices_get_their_scores() -> None:
    T = 12
    eye = torch.eye(T, dtype=torch.float64)
    uniform = torch.full((T, T), 1 / T, dtype=torch.float64)
    found = score_matrices(torch.stack([eye, eye[[0, *range(T - 1)]], blocks_at(T, 4, (1, 7)), uniform]))
    assert found.is_positional.tolist() == [True, True, False, False]
    offset, sigma_1 = found.scores["positional_offset"], found.scores["sigma_1"]
    assert (offset[0], sigma_1[0], found.scores["sigma_2"][0]) == (0, 0, 0)
    assert (offset[1], found.scores["positional_share"][1]) == (-1, 1)
    assert found.scores["previous_token"][1] == pytest.approx((T - 1) / T)
    assert (found.window[2], found.num_pos[2], found.scores["sigma_3"][2], found.starts[2]) == (4, 2, 0, (1, 7))
    assert found.scores["sigma_3_z"][2] < -5
    assert np.isnan([offset[3], found.scores["sigma_1_z"][3]]).all()


LENGTHS = {6: 3, 8: 1, 9: 4, 12: 2}


def pooled(*attention: Tensor) -> dict[str, np.ndarray]:
    structure = PooledStructure(max(LENGTHS))
    for each in attention:
        structure.add(each)
    return {name: score.numpy() for name, score in structure.scores().items()}


def test_pooled_distances_are_means_per_token_over_sentences() -> None:
    """The mean over single sentences of any lengths; w and p have the least mean among those that fit half of them."""
    heads = [random_heads(T, 2, 3, n, T, T) for T, n in LENGTHS.items()]
    found = pooled(*heads)
    assert tuple(found) == SCORES
    single = [each[..., b, :, :] for each in heads for b in range(each.shape[2])]
    sigma_1 = torch.stack([distances_to_diagonal(each) / each.shape[-1] for each in single]).mean(0)
    np.testing.assert_allclose(found["sigma_1"], sigma_1, rtol=1e-12)

    def band(w: int) -> Tensor:
        bands = [distances_to_bands(each)[..., min(w, each.shape[-1] - 1)] / each.shape[-1] for each in single]
        return torch.stack(bands).mean(0)

    for w in BANDS:
        np.testing.assert_allclose(found[f"sigma_2_w{w}"], band(w), rtol=1e-12)
    best = torch.full((2, 3, 3), torch.inf, dtype=torch.float64)
    for w, p in [(rows, blocks) for rows in range(2, 13) for blocks in range(1, 12 // rows + 1)]:
        fitting = [each for each in single if w * p <= each.shape[-1]]
        if 2 * len(fitting) >= len(single):
            means = [distances_to_blocks(each)[..., w - 1, p] / each.shape[-1] for each in fitting]
            mean = torch.stack(means).mean(0)
            is_less = mean < best[..., 0] - 1e-12
            best[is_less] = torch.stack([mean, torch.full_like(mean, w), torch.full_like(mean, p)], -1)[is_less]
    for place, name in enumerate(("sigma_3", "sigma_3_window", "sigma_3_num_pos")):
        np.testing.assert_allclose(found[name], best[..., place], rtol=1e-12)
    for head in np.ndindex(2, 3):
        assert found["sigma_2"][head] == pytest.approx(band(int(found["sigma_3_window"][head]))[head].item())
