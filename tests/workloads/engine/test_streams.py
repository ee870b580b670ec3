"""Random numbers are a function of (seed, stream, step, index) and nothing else."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams, _kept_on_device, philox_4x32, philox_4x64

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
    (philox_4x32, "0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (philox_4x32, "243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    (philox_4x64, "0 0 0 0", "0 0", "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"),
    (
        philox_4x64,
        "243f6a8885a308d3 13198a2e03707344 a4093822299f31d0 082efa98ec4e6c89",
        "452821e638d01377 be5466cf34e90c6c",
        "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
    ),
]
"""Source: Salmon et al. 2011, the file `kat_vectors` of Random123."""


def _words(text: str) -> list[torch.Tensor]:
    return [torch.tensor([int(word, 16)], dtype=torch.uint64).view(torch.int64) for word in text.split()]


@pytest.mark.parametrize(("philox", "counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(philox: Callable[..., Any], counter: str, key: str, answer: str) -> None:
    words = philox(tuple(_words(counter)), tuple(_words(key)))
    assert [word.item() for word in words] == [word.item() for word in _words(answer)]


@given(st.lists(seeds, min_size=1, max_size=4, unique=True), st.data(), st.integers(0, 10**6))
def test_masks_depend_on_seed_step_and_call_alone_on_either_kind_of_device(
    pack: list[int], data: st.DataObject, step: int
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 90), min_size=1, max_size=3))
    dropped = [data.draw(st.integers(0, 2**16)) for _ in sizes]
    together = Streams(torch.tensor(pack)).kept("x", [((n,), m) for n, m in zip(sizes, dropped, strict=True)], step)
    stream = int.from_bytes(hashlib.blake2s(b"x", digest_size=8).digest(), "little")
    on_device = _kept_on_device(torch.tensor(pack), stream, step, sizes, dropped)
    assert all(map(torch.equal, together, on_device))
    lane = data.draw(st.integers(0, len(pack) - 1))
    longer = [((n + 5,), m) for n, m in zip(sizes, dropped, strict=True)]
    alone = Streams(torch.tensor([pack[lane]])).kept("x", longer, step)
    assert all(torch.equal(mask[0, :n], own[lane]) for mask, own, n in zip(alone, together, sizes, strict=True))
