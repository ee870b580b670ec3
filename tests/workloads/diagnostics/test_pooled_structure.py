"""Structure distances pooled over sentences: members of the families, means over sentences, chance.

Axes: H head, B sentence, T token.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.shuffles import BANDS, SCORES, PooledStructure
from attnsweep.workloads.diagnostics.structure import distances_to_bands, distances_to_blocks, distances_to_diagonal

LONGEST = 12


def _random(seed: int, *shape: int, sharpness: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(*shape, generator=generator, dtype=torch.float64)).softmax(-1)


def _pooled(*attention: Tensor) -> dict[str, np.ndarray]:
    structure = PooledStructure(LONGEST)
    for each in attention:
        structure.add(each)
    scores = structure.scores()
    assert tuple(scores) == SCORES
    return {name: score.numpy() for name, score in scores.items()}


def _blocks(T: int, w: int, starts: list[int]) -> Tensor:
    head = torch.eye(T, dtype=torch.float64)
    for start in starts:
        head[start : start + w] = 0.0
        head[start : start + w, start] = 1.0
    return head


LENGTHS = {6: 3, 8: 1, 9: 4, 12: 2}


def test_they_are_means_per_token_over_sentences() -> None:
    """The mean over single sentences of any lengths; w and p have the least mean among those that fit half of them."""
    heads = [_random(T, 2, 3, n, T, T) for T, n in LENGTHS.items()]
    found = _pooled(*heads)
    single = [each[..., b, :, :] for each in heads for b in range(each.shape[2])]
    assert len(single) == 10
    sigma_1 = torch.stack([distances_to_diagonal(each) / each.shape[-1] for each in single]).mean(0)
    np.testing.assert_allclose(found["sigma_1"], sigma_1, rtol=1e-12)

    def band(w: int) -> Tensor:
        bands = [distances_to_bands(each)[..., min(w, each.shape[-1] - 1)] / each.shape[-1] for each in single]
        return torch.stack(bands).mean(0)

    for w in BANDS:
        np.testing.assert_allclose(found[f"sigma_2_w{w}"], band(w), rtol=1e-12)
    best = torch.full((2, 3, 3), torch.inf, dtype=torch.float64)
    for w in range(2, LONGEST + 1):
        for p in range(1, LONGEST // w + 1):
            fitting = [each for each in single if w * p <= each.shape[-1]]
            if 2 * len(fitting) >= len(single):
                mean = torch.stack(
                    [distances_to_blocks(each)[..., w - 1, p] / each.shape[-1] for each in fitting]
                ).mean(0)
                is_less = mean < best[..., 0] - 1e-12
                best[is_less] = torch.stack([mean, torch.full_like(mean, w), torch.full_like(mean, p)], -1)[is_less]
    np.testing.assert_allclose(found["sigma_3"], best[..., 0], rtol=1e-12)
    np.testing.assert_array_equal(found["sigma_3_window"], best[..., 1])
    np.testing.assert_array_equal(found["sigma_3_num_pos"], best[..., 2])
    for place in np.ndindex(2, 3):
        of_window = band(int(found["sigma_3_window"][place]))[place]
        assert found["sigma_2"][place] == pytest.approx(of_window.item())


def test_members_are_at_distance_0() -> None:
    eyes = [torch.eye(T, dtype=torch.float64).expand(1, n, T, T) for T, n in LENGTHS.items()]
    assert _pooled(*eyes)["sigma_1"] == 0
    for w in BANDS:
        bands = []
        for T, n in LENGTHS.items():
            apart = (torch.arange(T) - torch.arange(T).unsqueeze(1)).abs()
            head = _random(w, 1, n, T, T) * (apart <= w)
            bands.append(head / head.sum(-1, keepdim=True))
        found = _pooled(*bands)
        for wider in BANDS:
            assert (found[f"sigma_2_w{wider}"][0] < 1e-12) == (wider >= w)


@pytest.mark.parametrize(("w", "p"), [(2, 1), (2, 3), (3, 2), (5, 1)])
def test_planted_blocks_are_found_whatever_the_lengths(w: int, p: int) -> None:
    """The blocks are at different places in each sentence."""
    generator = torch.Generator().manual_seed(w)
    sentences = []
    for T, n in LENGTHS.items():
        for _ in range(n):
            gaps = torch.randperm(T - w * p + p, generator=generator)[:p].sort().values.tolist()
            starts = [gap + i * (w - 1) for i, gap in enumerate(gaps)]
            sentences.append(0.9 * _blocks(T, w, starts) + 0.1 * _random(T, T, T))
    found = _pooled(*[each.expand(1, 1, *each.shape) for each in sentences])
    assert (found["sigma_3_window"][0], found["sigma_3_num_pos"][0]) == (w, p)
    assert found["sigma_3"][0] < 0.2
    assert found["sigma_3"][0] < found["sigma_1"][0]


def test_blocks_that_fit_into_few_sentences_are_no_candidates() -> None:
    """Blocks of six rows fit only into the two longest sentences."""
    short = [_blocks(5, 2, [b]).expand(1, 1, 5, 5) for b in (0, 1, 2)]
    long = _blocks(12, 6, [3]).expand(1, 2, 12, 12)
    found = _pooled(*short, long)
    assert found["sigma_3_window"][0] <= 5
    # With one more such sentence they are half of all.
    found = _pooled(short[0], short[1], long)
    mean = (distances_to_blocks(long)[0, :, 5, 1] / 12).mean()
    assert mean == 0
    assert (found["sigma_3_window"][0], found["sigma_3_num_pos"][0], found["sigma_3"][0]) == (6, 1, 0)


def test_z_is_far_below_0_for_structure_and_about_0_for_noise() -> None:
    def heads(plant: dict[str, Tensor]) -> Tensor:
        return torch.stack(list(plant.values())).unsqueeze(1)

    sentences = []
    for T in LENGTHS:
        noise = _random(50 + T, T, T)
        sentences.append(
            heads(
                {
                    "diagonal": 0.7 * torch.eye(T, dtype=torch.float64) + 0.3 * noise,
                    "blocks": 0.7 * _blocks(T, 3, [0, 3]) + 0.3 * noise,
                    "band": 0.7 * (torch.eye(T).roll(1, 0) + torch.eye(T)).tril().double() / 2 + 0.3 * noise,
                    "uniform": torch.full((T, T), 1 / T, dtype=torch.float64),
                }
            )
        )
    found = _pooled(*sentences)
    assert found["sigma_1_z"][0] < -5
    assert found["sigma_3_z"][1] < -3
    assert (found["sigma_3_window"][1], found["sigma_3_num_pos"][1]) == (3, 2)
    for name in ("sigma_1_z", "sigma_2_z", "sigma_3_z"):
        assert np.isnan(found[name][3]), name
    assert found["sigma_2_z"][2] < -3
    noise_z = _pooled(*[_random(T, 300, 1, T, T) for T in LENGTHS])
    for name in ("sigma_1_z", "sigma_2_z", "sigma_3_z"):
        # z of ten shuffles follows Student's t with 9 degrees of freedom, slightly widened by the error of their mean.
        assert abs(noise_z[name].mean()) < 0.5, name
        assert 0.7 < noise_z[name].std() < 1.8, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_head_scores_the_same_to_the_last_bit_beside_others(dtype: torch.dtype) -> None:
    heads = [_random(T, 7, 2, n, T, T).to(dtype) for T, n in LENGTHS.items()]
    whole = _pooled(*heads)
    for some in (slice(0, 1), slice(2, 5), slice(3, 7)):
        part = _pooled(*[each[some] for each in heads])
        for name in SCORES:
            np.testing.assert_array_equal(part[name], whole[name][some], err_msg=name)
