"""Random numbers are a function of (seed, stream, step, index) and nothing else."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workloads.engine.streams import Streams

seeds = st.integers(0, 2**63 - 1)


@given(st.lists(seeds, min_size=1, max_size=8, unique=True), st.data(), st.integers(0, 10**6))
def test_a_draw_does_not_depend_on_the_pack(pack: list[int], data: st.DataObject, step: int) -> None:
    lane = data.draw(st.integers(0, len(pack) - 1))
    alone = Streams(torch.tensor([pack[lane]])).normal("x", (3, 5), step)
    fused = Streams(torch.tensor(pack)).normal("x", (3, 5), step)
    assert torch.equal(alone[0], fused[lane])


@given(st.integers(1, 40), st.integers(1, 40))
def test_a_longer_draw_of_integers_in_one_block_order_is_reproducible(n_values: int, n_drawn: int) -> None:
    streams = Streams(torch.tensor([7]))
    drawn = streams.integers("x", (n_drawn,), n_values)
    assert torch.equal(drawn, streams.integers("x", (n_drawn,), n_values))
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < n_values


@pytest.mark.parametrize("change", [{"name": "y"}, {"step": 1}, {"seed": 8}, {"seed": 7 + 2**32}])
def test_another_name_step_or_seed_gives_other_numbers(change: dict[str, int | str]) -> None:
    key = {"name": "x", "step": 0, "seed": 7}

    def draw(name: str, step: int, seed: int) -> torch.Tensor:
        return Streams(torch.tensor([seed])).uniform(name, (64,), step)

    assert not torch.isin(draw(**key), draw(**(key | change))).any()


def test_the_distributions_are_what_they_say() -> None:
    streams = Streams(torch.tensor([1]))
    normal = streams.normal("n", (20_000,))[0].numpy()
    uniform = streams.uniform("u", (20_000,))[0].numpy()
    counts = torch.bincount(streams.integers("i", (20_000,), 7)[0], minlength=7).numpy()
    assert stats.kstest(normal, "norm").pvalue > 1e-3
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    assert stats.chisquare(counts).pvalue > 1e-3
