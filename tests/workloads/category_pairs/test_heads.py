"""Solution scores on the hand-programmed weights, their mixtures, and noise."""

import pytest
import torch

from attnsweep.reproduction.shin.handmade import SOLUTIONS
from attnsweep.workloads.category_pairs.head_scores import solution_scores

N, M = 4, 6
GENERATOR = torch.Generator().manual_seed(0)
TARGET = torch.randn(N, N, generator=GENERATOR, dtype=torch.float64)
NOISE = torch.randn(2, N + M, N + M, generator=GENERATOR, dtype=torch.float64)


def _blocks(*names: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of k^t q and of v of hand-programmed solutions, each scaled to norm 1."""
    made = [SOLUTIONS[name](TARGET, M) for name in names]
    logits = [each.k_XS.T @ each.q_XS for each in made]
    kq_SS, v_SS = (
        torch.stack([matrix / matrix.norm() for matrix in matrices]).sum(0)
        for matrices in (logits, [each.v_SS for each in made])
    )
    return kq_SS, v_SS


@pytest.mark.parametrize("name", SOLUTIONS)
def test_a_solution_is_recognized_up_to_scale_and_sign(name: str) -> None:
    logits, values = _blocks(name)
    lanes = torch.stack([logits, -3 * logits, logits + 0.01 * NOISE[0], NOISE[0]])
    values = torch.stack([values, -0.1 * values, values + 0.01 * NOISE[1], NOISE[1]])
    _, labels = solution_scores("combined", lanes, values, TARGET.expand(4, N, N))
    assert list(labels) == [name, name, name, "none"]


def test_mixtures_and_dead_blocks() -> None:
    logits, values = _blocks("solution_2", "solution_3")
    zero = torch.zeros_like(logits)
    scores, labels = solution_scores(
        "combined", torch.stack([logits, zero]), torch.stack([values, zero]), TARGET.expand(2, N, N)
    )
    assert list(labels) == ["mixed", "none"]
    shares = [scores[f"share_logits_{block}"][0] for block in ("cc", "cp", "pc", "pp")]
    assert shares == pytest.approx([0.5, 0.0, 0.0, 0.5])
