"""Random numbers that depend only on the training's seed, the stream's name, the step and the index, by the generators
Philox4x32-10 and, for the masks of dropout, Philox4x64-10, which NumPy has compiled.

Streams have no state: a training draws the same values with any other trainings, in any process, on any device, and
after a resume. A longer draw begins with the values of a shorter one, but for `bits`. A word is a 32-bit value in an
int64 tensor, because PyTorch has no arithmetic on unsigned 32-bit integers. Source: Salmon et al. 2011.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

Words = tuple[Tensor, Tensor, Tensor, Tensor]

_ROUNDS = 10
_MASK = 0xFFFFFFFF


def philox_4x32(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Four random 32-bit words from each pair of a counter and a key, in their broadcast shape."""
    return _philox(counter, key, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), _product_32, _MASK)


def philox_4x64(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """The same for 64-bit words: the bits of int64 numbers."""
    multipliers = 0xD2E7470EE14C6C93, 0xCA5A826395121157
    return _philox(counter, key, multipliers, (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B), _product_64, -1)


def _philox(
    counter: Words,
    key: tuple[Tensor, Tensor],
    multipliers: tuple[int, int],
    weyl: tuple[int, int],
    product: Callable[[Tensor, int], tuple[Tensor, Tensor]],
    mask: int,
) -> Words:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = product(c0, multipliers[0])
        high1, low1 = product(c2, multipliers[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _signed(weyl[0])) & mask, (k1 + _signed(weyl[1])) & mask
    return c0, c1, c2, c3


def _product_32(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    # The 64-bit product may overflow into the sign bit, but shifting and masking still extract the right bits.
    product = word * constant
    return _high(product), product & _MASK


def _product_64(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    low, high, by_low, by_high = word & _MASK, _high(word), constant & _MASK, constant >> 32
    first, second = low * by_high, high * by_low
    carried = (_high(low * by_low) + (first & _MASK) + (second & _MASK)) >> 32
    return high * by_high + _high(first) + _high(second) + carried, word * _signed(constant)


def _high(word: Tensor) -> Tensor:
    return (word >> 32) & _MASK


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


_BITS = 32
_TWO_TO_MINUS_53 = 2.0**-53


class Streams:
    """The random streams of trainings with these seeds, (n_trainings,) int64."""

    def __init__(self, seeds: Tensor) -> None:
        self.seeds = seeds

    def seeds_at(self, name: str, used_from: int) -> Tensor:
        """The seeds that draw values first used at step `used_from`: the trainings' own, but in continuations."""
        del name, used_from
        return self.seeds

    def select(self, lanes: Tensor) -> Self:
        return type(self)(self.seeds[lanes])

    def uniform(
        self, name: str, shape: tuple[int, ...], step: int | Tensor = 0, used_from: int | None = None
    ) -> Tensor:
        """float64, uniform in [0, 1) with 53 random bits: (n_trainings, *shape).

        `step` numbers the draws of the stream; where it counts something other than steps, such as epochs, `used_from`
        is the first step that uses the values.
        """
        n_blocks = (math.prod(shape) + 1) // 2
        return _interleaved(self._two_uniforms(name, n_blocks, step, used_from), shape)

    def normal(self, name: str, shape: tuple[int, ...], step: int | Tensor = 0) -> Tensor:
        """float64, from N(0, 1), (n_trainings, *shape), by Box & Muller 1958, using both of each pair."""
        radius_draw, angle_draw = self._two_uniforms(name, (math.prod(shape) + 1) // 2, step)
        radius = torch.sqrt(-2.0 * torch.log1p(-radius_draw))
        angle = (2.0 * math.pi) * angle_draw
        return _interleaved((radius * torch.cos(angle), radius * torch.sin(angle)), shape)

    def integers(self, name: str, shape: tuple[int, ...], n_values: int, step: int | Tensor = 0) -> Tensor:
        """int64, from 0 to n_values - 1, (n_trainings, *shape), equally likely up to n_values / 2^32."""
        words = _interleaved(self._words(name, (math.prod(shape) + 3) // 4, step), shape)
        return (words * n_values) >> 32

    def kept(self, name: str, calls: Sequence[tuple[tuple[int, ...], int]], step: int) -> list[Tensor]:
        """A mask of dropout for each call, given by its shape and by how many of 65,536 entries it drops: uint8
        (n_trainings, *shape), 0 where dropped; independent of the calls before it."""
        seeds, stream = self.seeds_at(name, step), int.from_bytes(_digest(name), "little")
        sizes = [math.prod(shape) for shape, _ in calls]
        dropped = [n_dropped for _, n_dropped in calls]
        masks = (_kept if seeds.device.type == "cpu" else _kept_on_device)(seeds, stream, step, sizes, dropped)
        return [mask.view(len(seeds), *shape) for mask, (shape, _) in zip(masks, calls, strict=True)]

    def bits(self, name: str, n_strings: int, n_bits: int, steps: range) -> Tensor:
        """Strings of fair bits for several steps, (n_trainings, len(steps), n_strings, n_bits) bool. A bit does not
        depend on `n_bits`: the first 32 of all strings are drawn before the next 32 of any."""
        n_words = -(-n_bits // _BITS)
        counts = torch.arange(steps.start, steps.stop, steps.step, dtype=torch.int64, device=self.seeds.device)
        # Blocks of four words, along three axes: trainings, steps, and the blocks of one step.
        seeds = self.seeds_at(name, steps.start).view(-1, 1, 1)
        blocks = self._blocks(name, (n_words * n_strings + 3) // 4, counts.view(-1, 1), seeds)
        words = torch.stack(blocks, dim=-1).flatten(2)[:, :, : n_words * n_strings]
        by_string = words.view(*words.shape[:2], n_words, n_strings).transpose(2, 3).contiguous()
        # Into four bytes, the least significant first: bits come out of bytes in an eighth of the time.
        octets = by_string.unsqueeze(-1).view(torch.uint8)[..., :4]
        shifts = torch.arange(8, dtype=torch.uint8, device=octets.device)
        return ((octets.unsqueeze(-1) >> shifts) & 1).flatten(3)[..., :n_bits].to(torch.bool)

    def _two_uniforms(
        self, name: str, n_blocks: int, step: int | Tensor, used_from: int | None = None
    ) -> tuple[Tensor, Tensor]:
        w0, w1, w2, w3 = self._words(name, n_blocks, step, used_from)
        return _to_unit_interval(w0, w1), _to_unit_interval(w2, w3)

    def _words(self, name: str, n_blocks: int, step: int | Tensor, used_from: int | None = None) -> Words:
        seeds = (
            self.seeds if isinstance(step, Tensor) else self.seeds_at(name, step if used_from is None else used_from)
        )
        return self._blocks(name, n_blocks, self._word(step), seeds.unsqueeze(1))

    def _blocks(self, name: str, n_blocks: int, steps: Tensor, seeds: Tensor) -> Words:
        digest = _digest(name)
        index = torch.arange(n_blocks, dtype=torch.int64, device=self.seeds.device)
        c2, c3 = (self._word(int.from_bytes(part, "little")) for part in (digest[:4], digest[4:]))
        return philox_4x32((index, steps & _MASK, c2, c3), (seeds & _MASK, (seeds >> 32) & _MASK))

    def _word(self, number: int | Tensor) -> Tensor:
        if isinstance(number, Tensor):  # a step within vmap, where many are drawn at once
            return number
        # `full` fills it on the device; the host would wait for a copy.
        return torch.full((), number, dtype=torch.int64, device=self.seeds.device)


def _kept(seeds: Tensor, stream: int, step: int, sizes: Sequence[int], dropped: Sequence[int]) -> list[Tensor]:
    masks = [np.empty((len(seeds), size), dtype=np.bool_) for size in sizes]
    generator = np.random.Philox()
    state: Any = generator.state
    for lane, seed in enumerate(seeds.tolist()):
        for call, (mask, n_dropped) in enumerate(zip(masks, dropped, strict=True)):
            # NumPy counts up before it computes words, so the first counter is 1.
            state["state"] = {
                "key": np.array((seed % 2**64, stream), np.uint64),
                "counter": np.array((0, step % 2**64, call, 0), np.uint64),
            }
            generator.state = state
            halves = generator.random_raw(-(-mask.shape[1] // 4)).view(np.uint16)[: mask.shape[1]]
            np.greater_equal(halves, n_dropped, out=mask[lane])
    return [torch.from_numpy(mask.view(np.uint8)) for mask in masks]


def _kept_on_device(
    seeds: Tensor, stream: int, step: int, sizes: Sequence[int], dropped: Sequence[int]
) -> list[Tensor]:
    """The same masks, drawn together: a device takes longer to start an operation than to compute it."""
    n_blocks = [-(-size // 16) for size in sizes]
    index = torch.cat([torch.arange(1, n + 1, device=seeds.device) for n in n_blocks])
    call = torch.cat([torch.full((n,), call, device=seeds.device) for call, n in enumerate(n_blocks)])
    counter = index, torch.full_like(index, step), call, torch.zeros_like(index)
    words = philox_4x64(counter, (seeds.unsqueeze(1), torch.full_like(seeds, _signed(stream)).unsqueeze(1)))
    halves = torch.stack(words, dim=-1).view(torch.int16).flatten(1).split([16 * n for n in n_blocks], dim=1)
    return [
        (half[:, :size].to(torch.int32) % 2**16 >= n_dropped).view(torch.uint8)
        for half, size, n_dropped in zip(halves, sizes, dropped, strict=True)
    ]


def _digest(name: str) -> bytes:
    return hashlib.blake2s(name.encode(), digest_size=8).digest()


def generator_seed(seed: int, name: str) -> int:
    """A 63-bit seed for other libraries' generators, from a training's seed and a stream's name."""
    digest = hashlib.blake2s(f"{name}/{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _interleaved(values_of_blocks: tuple[Tensor, ...], shape: tuple[int, ...]) -> Tensor:
    values = torch.stack(values_of_blocks, dim=-1).flatten(1)
    return values[:, : math.prod(shape)].reshape(len(values), *shape)


def _to_unit_interval(high: Tensor, low: Tensor) -> Tensor:
    bits = ((high << 21) ^ (low >> 11)).to(torch.float64)
    return bits * _TWO_TO_MINUS_53
