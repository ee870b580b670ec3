"""Random numbers are a function of (seed, stream, step, index) and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams, philox_4x32

seeds = st.integers(0, 2**63 - 1)


KINDS: dict[str, Callable[[Streams, tuple[int, ...], int], Tensor]] = {
    "uniform": lambda streams, shape, step: streams.uniform("x", shape, step),
    "normal": lambda streams, shape, step: streams.normal("x", shape, step),
    "integers": lambda streams, shape, step: streams.integers("x", shape, 1000, step),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(seeds, min_size=1, max_size=8, unique=True), st.data(), st.integers(0, 10**6))
def test_a_draw_depends_neither_on_the_pack_nor_on_its_length(
    kind: str, pack: list[int], data: st.DataObject, step: int
) -> None:
    lane, n_rows, n_more = (data.draw(st.integers(0, most)) for most in (len(pack) - 1, 8, 8))
    alone = KINDS[kind](Streams(torch.tensor([pack[lane]])), (n_rows, 5), step)
    fused = KINDS[kind](Streams(torch.tensor(pack)), (n_rows + n_more, 5), step)
    assert torch.equal(alone[0], fused[lane, :n_rows])


@pytest.mark.parametrize("change", [{"name": "y"}, {"step": 1}, {"seed": 8}, {"seed": 7 + 2**32}])
def test_another_name_step_or_seed_gives_other_numbers(change: dict[str, int | str]) -> None:
    key: dict[str, Any] = {"name": "x", "step": 0, "seed": 7}

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


@pytest.mark.slow
@given(st.lists(seeds, min_size=1, max_size=5, unique=True), st.data())
def test_bits_depend_on_seed_step_and_place_alone(pack: list[int], data: st.DataObject) -> None:
    lane = data.draw(st.integers(0, len(pack) - 1))
    first, n_steps = data.draw(st.integers(0, 10**6)), data.draw(st.integers(1, 4))
    n_bits, n_more, n_strings = (data.draw(st.integers(1, 70)) for _ in range(3))
    many = Streams(torch.tensor(pack)).bits("x", n_strings, n_bits + n_more, range(first, first + n_steps))
    assert many.shape == (len(pack), n_steps, n_strings, n_bits + n_more)
    step = data.draw(st.integers(0, n_steps - 1))
    one = Streams(torch.tensor([pack[lane]])).bits("x", n_strings, n_bits, range(first + step, first + step + 1))
    assert torch.equal(one[0, 0], many[lane, step, :, :n_bits])


KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def _words(text: str) -> list[torch.Tensor]:
    return [torch.tensor([int(word, 16)]) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    c0, c1, c2, c3 = _words(counter)
    k0, k1 = _words(key)
    words = philox_4x32((c0, c1, c2, c3), (k0, k1))
    assert [word.item() for word in words] == [word.item() for word in _words(answer)]
