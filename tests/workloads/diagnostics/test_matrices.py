"""`score_matrices`: its scores of planted heads, and its refusals."""

from typing import Any

import numpy as np
import pytest
import torch

from attnsweep.workloads.diagnostics.matrices import score_matrices
from attnsweep.workloads.diagnostics.shuffles import permutation_test
from attnsweep.workloads.diagnostics.structure import distances_to_blocks
from attnsweep.workloads.errors import UserError

N = 12


def _planted() -> np.ndarray:
    """Identity, previous token, two blocks of four rows, uniform."""
    blocks = np.eye(N)
    for start in (1, 7):
        blocks[start : start + 4] = np.eye(N)[start]
    previous = np.eye(N)[[0, *range(N - 1)]]
    return np.stack([np.eye(N), previous, blocks, np.full((N, N), 1 / N)]).astype(np.float32)


def test_planted_heads() -> None:
    found = score_matrices(_planted())
    assert found.is_positional.tolist() == [True, True, False, False]
    offset, sigma_1 = found.scores["positional_offset"], found.scores["sigma_1"]
    assert (offset[0], sigma_1[0], found.scores["sigma_2"][0]) == (0, 0, 0)
    assert (offset[1], found.scores["positional_share"][1]) == (-1, 1)
    assert found.scores["previous_token"][1] == pytest.approx((N - 1) / N)
    assert found.bands[1, :2].tolist() == [2 * (N - 1), 0]
    assert (found.window[2], found.num_pos[2], found.scores["sigma_3"][2]) == (4, 2, 0)
    assert (found.starts[2], found.columns[2]) == ((1, 7), (1, 7))
    assert found.scores["sigma_3_z"][2] < -5
    assert np.isnan([offset[3], found.scores["sigma_1_z"][3]]).all()


@pytest.mark.parametrize(
    "matrices",
    [np.eye(3), np.ones((2, 3, 4)), np.full((1, 2, 2), np.nan), -np.eye(3)[None], np.eye(3)[None] / 0.9],
)
def test_what_is_no_attention_is_refused(matrices: np.ndarray) -> None:
    with pytest.raises(UserError) as refused:
        score_matrices(matrices)
    assert refused.value.subject == "attention"


def test_shuffled_matrices_choose_among_the_same_blocks() -> None:
    heads = torch.rand(3, N, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
    fixed = permutation_test(heads, lambda each: distances_to_blocks(each)[..., 2, 1])
    found = score_matrices(heads, window=3, num_pos=1)
    np.testing.assert_allclose(found.scores["sigma_3_z"], fixed.z.numpy())
    chosen = permutation_test(heads, lambda each: distances_to_blocks(each)[..., 2, 1:].amin(-1))
    np.testing.assert_allclose(score_matrices(heads, window=3).scores["sigma_3_z"], chosen.z.numpy())


def _sparse() -> np.ndarray:
    """A band of half-width 1 but for two far entries; two blocks of four rows on their third column but for one."""
    band = (np.eye(N) + np.eye(N, k=1)) / 2
    band[-1, -1] = 1.0
    band[[2, 5]] = np.eye(N)[[9, 0]]
    blocks = np.eye(N)
    for start in (1, 7):
        blocks[start : start + 4] = np.eye(N)[start + 2]
    blocks[3] = np.eye(N)[11]
    return np.stack([band, blocks])


def test_free_entries_take_what_the_families_do_not_have() -> None:
    given: dict[str, Any] = {"any_row_sum": True, "window": 4, "num_pos": 2}
    scores = score_matrices(_sparse() / 0.9, **given, free_entries=2).scores
    dropout = N * (1 / 0.9 - 1)  # What rows of sum 1/0.9 are away from any that sum to 1.
    assert scores["sigma_2"][0] == pytest.approx(dropout + 4)
    assert scores["sigma_2_plus_e"][0] == pytest.approx(dropout)
    assert scores["sigma_3_any_column"][1] == pytest.approx(dropout + 2)
    assert scores["sigma_3_any_column_plus_e"][1] == pytest.approx(dropout)
    assert scores["sigma_3_plus_e"][1] > dropout + 1
    assert scores["sigma_1_plus_e"][1] == pytest.approx(scores["sigma_1"][1] - 4)
    assert "sigma_2_plus_e" not in score_matrices(_sparse() / 0.9, **given).scores
