"""Tests whether attention matrices are nearer to structured matrices than their own shuffled versions are.

The structured matrices are the identity (Sigma_1), bands (Sigma_2), and the identity with p blocks of w rows that
attend to one column (Sigma_3). They are nested and of different sizes, so distances to different families cannot be
compared directly. A shuffled matrix keeps the entries of each row (and so its entropy) but loses the positions they
attend to. With `is_causal`, entries are shuffled within the mask: moved to masked positions, they would make any matrix
look nearer than chance.

The distance on a sentence is divided by the number of tokens, so it is between 0 (in the family) and 2. A head's
distance is the mean over sentences. The numbers w and p of Sigma_3 are the same for all sentences: they minimize this
mean.

Axes: ... any number of axes of heads; B sentence, T token, S shuffle, W half-width, P number of blocks.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.structure import distances_to_bands, distances_to_blocks, distances_to_diagonal
from attnsweep.workloads.engine.streams import Streams

N_PERMUTATIONS = 100
_SEED = 0
_ELEMENTS_AT_ONCE = 2**24


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """The `mean` and `deviation` of the distances of each matrix's shuffles, and z = (distance - mean) / deviation: far
    below 0 means nearer than chance; NaN if shuffling changes nothing."""

    distance: Tensor
    mean: Tensor
    deviation: Tensor

    @property
    def z(self) -> Tensor:
        least = 1e-9 * self.mean.abs().clamp_min(1.0)
        return torch.where(self.deviation > least, (self.distance - self.mean) / self.deviation, torch.nan)


def permutation_test(
    attention: Tensor,
    distance: Callable[[Tensor], Tensor],
    n_permutations: int = N_PERMUTATIONS,
    *,
    is_causal: bool = False,
) -> PermutationTest:
    """Compares the distance of each matrix to a structure with those of its shuffles, by the same permutations in all
    calls.

    Args:
        distance: From matrices (..., n_tokens, n_tokens). The nearest of several families it chooses itself, so that it
            is chosen for each shuffle too.
        is_causal: Shuffle only the entries j <= i of row i, because the others cannot hold attention.
    """
    T = attention.shape[-1]
    n_at_once = max(1, _ELEMENTS_AT_ONCE // attention.numel())
    distances = []
    for first in range(0, n_permutations, n_at_once):
        steps = range(first, min(first + n_at_once, n_permutations))
        places = torch.stack([_places(T, step, is_causal=is_causal) for step in steps])
        shape = (len(places), *attention.shape)
        places = places.view(-1, *[1] * (attention.ndim - 2), T, T).expand(shape).to(attention.device)
        distances.append(distance(attention.expand(shape).gather(-1, places)))
    shuffled = torch.cat(distances)
    return PermutationTest(distance(attention), shuffled.mean(0), shuffled.std(0))


def shuffles(attention: Tensor, n_shuffles: int) -> Tensor:
    """Shuffles each row of square matrices, in the same ways for all: a new axis before the last two."""
    T = attention.shape[-1]
    places_STT = _places_on(T, n_shuffles, attention.device)
    shape = (*attention.shape[:-2], *places_STT.shape)
    return attention.unsqueeze(-3).expand(shape).gather(-1, places_STT.expand(shape))


@functools.lru_cache(maxsize=1024)
def _places_on(T: int, n_shuffles: int, device: torch.device) -> Tensor:
    return torch.stack([_places(T, step, is_causal=False) for step in range(n_shuffles)]).to(device)


@functools.lru_cache(maxsize=4096)
def _places(T: int, step: int, *, is_causal: bool) -> Tensor:
    streams = Streams(torch.tensor([_SEED]))
    order_TT = streams.uniform("structure.permutation", (T, T), step)[0]
    if is_causal:
        # By sorting numbers from 0 to 1; keys after a query, in causal attention, get increasing ones above 1.
        order_TT = torch.where(torch.ones(T, T).triu(1) > 0, 1.0 + torch.arange(T), order_TT)
    return order_TT.argsort(-1)


N_SHUFFLES = 10
"""Shuffles of a matrix for the scores `..._z`, of the first sentence of each length alone. Our choice."""
FITS_SHARE = 0.5
"""A size w and number p of blocks is considered if it fits into this share of the sentences. Our choice."""
_NO_SPREAD = 1e-6
"""If the standard deviation of the shuffles' distances is below this, they differ by rounding only."""
BANDS = (1, 2, 4)
"""The half-widths w of bands for which the distance of a head to the band, Sigma_2(w), is a score."""

SCORES = (
    "sigma_1",
    "sigma_1_z",
    *(f"sigma_2_w{window}" for window in BANDS),
    "sigma_2",
    "sigma_2_z",
    "sigma_3",
    "sigma_3_z",
    "sigma_3_window",
    "sigma_3_num_pos",
)


class PooledStructure:
    """Mean distances, over sentences, of heads' attention to the identity, to bands, and to blocks."""

    def __init__(self, longest: int) -> None:
        self._all = _Sums(longest)
        self._lengths_of_z: set[int] = set()
        self._first_of_length = _Sums(longest)
        self._shuffled = _Sums(longest)

    def add(self, attention: Tensor) -> None:
        """Adds sentences of one length, given the attention weights of all heads on them."""
        B, T = attention.shape[-3], attention.shape[-1]
        if T in self._lengths_of_z:
            self._all.add(_Distances.to(attention))
            return
        self._lengths_of_z.add(T)
        # Measured in one call, because many matrices take as many operations as one.
        distances = _Distances.to(torch.cat([attention, shuffles(attention[..., 0, :, :], N_SHUFFLES)], -3))
        self._all.add(distances.select(slice(B)))
        self._first_of_length.add(distances.select(slice(1)))
        self._shuffled.add(distances.select(slice(B, None)).sentences_first())

    def scores(self) -> dict[str, Tensor]:
        """Returns by name the scores of all heads: the mean distances of their attention from structured matrices such
        as the identity, and how much smaller these distances are than those of shuffled attention.

        The names are in the order of `SCORES`:

        - sigma_1, sigma_2_w<w>, sigma_3: the mean distances per token to the identity, to bands of half-width w, and to
          the identity with blocks.
        - sigma_3_window, sigma_3_num_pos: the height w and the number p of blocks for which sigma_3 is smallest, among
          blocks of at least two rows. sigma_2: the distance to the band of that w.
        - ..._z: the mean distance over the first sentences of each length, minus the mean over their shuffles, in
          standard deviations of the shuffles; the w and p of sigma_3 are chosen again for each shuffle. Far below 0
          means nearer than chance.
        """
        sigma_3, window, num_pos = self._all.to_blocks()
        scores = {
            "sigma_1": self._all.to_diagonal(),
            "sigma_1_z": _z(self._first_of_length.to_diagonal(), self._shuffled.to_diagonal()),
            **{f"sigma_2_w{w}": self._all.to_band(torch.full_like(window, w)) for w in BANDS},
            "sigma_2": self._all.to_band(window),
            "sigma_2_z": _z(self._first_of_length.to_band(window), self._shuffled.to_band(window)),
            "sigma_3": sigma_3,
            "sigma_3_z": _z(self._first_of_length.to_blocks()[0], self._shuffled.to_blocks()[0]),
            "sigma_3_window": window.to(sigma_3),
            "sigma_3_num_pos": num_pos.to(sigma_3),
        }
        return {name: scores[name] for name in SCORES}


def _z(value: Tensor, shuffled: Tensor) -> Tensor:
    # Shuffles become the last axis: a sum over the first could round differently by a head's place in the tensor.
    shuffled = shuffled.movedim(0, -1).contiguous()
    deviation = shuffled.std(-1)
    return torch.where(deviation > _NO_SPREAD, (value - shuffled.mean(-1)) / deviation, torch.nan)


@dataclass(frozen=True, slots=True)
class _Distances:
    """The distances of heads' attention on each sentence, summed over its tokens: to the identity, to the band of each
    half-width w, and to p blocks of w rows; infinite where they do not fit."""

    diagonal_B: Tensor
    bands_BW: Tensor
    blocks_BWP: Tensor
    n_tokens: int

    @classmethod
    def to(cls, attention: Tensor) -> "_Distances":
        parts = (distances_to_diagonal(attention), distances_to_bands(attention), distances_to_blocks(attention))
        return cls(*parts, attention.shape[-1])

    def select(self, sentences: slice) -> "_Distances":
        parts = self.diagonal_B[..., sentences], self.bands_BW[..., sentences, :], self.blocks_BWP[..., sentences, :, :]
        return _Distances(*parts, self.n_tokens)

    def sentences_first(self) -> "_Distances":
        parts = self.diagonal_B.movedim(-1, 0), self.bands_BW.movedim(-2, 0), self.blocks_BWP.movedim(-3, 0)
        return _Distances(parts[0].unsqueeze(-1), parts[1].unsqueeze(-2), parts[2].unsqueeze(-3), self.n_tokens)


@functools.lru_cache(maxsize=1024)
def _fits(T: int, device: torch.device) -> Tensor:
    """Whether p blocks of w rows fit into `T` rows, at [w - 1, p]."""
    return (torch.arange(1, T + 1).unsqueeze(1) * torch.arange(T + 1) <= T).to(device)


class _Sums:
    """Distances of each head's attention to structured matrices, by token, summed over sentences."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._n_sentences = 0
        self._diagonal: Tensor | float = 0.0
        self._bands_W: Tensor | float = 0.0
        self._blocks_WP: Tensor | float = 0.0
        self._fits_WP = torch.zeros(longest, longest + 1)

    def add(self, distances: _Distances) -> None:
        B, T = distances.diagonal_B.shape[-1], distances.n_tokens
        more = self._longest - T
        self._n_sentences += B
        self._diagonal = self._diagonal + distances.diagonal_B.sum(-1) / T
        # A band wider than the sentence covers all keys, so its distance is 0.
        bands = distances.bands_BW.sum(-2) / T
        self._bands_W = self._bands_W + torch.nn.functional.pad(bands, (0, more))
        summed = distances.blocks_BWP.sum(-3) / T
        summed = summed.masked_fill(~_fits(T, summed.device), 0.0)
        self._blocks_WP = self._blocks_WP + torch.nn.functional.pad(summed, (0, more, 0, more))
        self._fits_WP = self._fits_WP + torch.nn.functional.pad(
            _fits(T, torch.device("cpu")) * float(B), (0, more, 0, more)
        )

    def to_diagonal(self) -> Tensor:
        return torch.as_tensor(self._diagonal) / self._n_sentences

    def to_band(self, window: Tensor) -> Tensor:
        bands_W = torch.as_tensor(self._bands_W) / self._n_sentences
        place = window.clamp(max=self._longest - 1).expand(bands_W.shape[:-1]).unsqueeze(-1)
        return bands_W.gather(-1, place).squeeze(-1)

    def to_blocks(self) -> tuple[Tensor, Tensor, Tensor]:
        blocks_WP = torch.as_tensor(self._blocks_WP)
        fits_WP = self._fits_WP.to(blocks_WP)
        is_candidate = fits_WP >= FITS_SHARE * self._n_sentences
        is_candidate[0] = False
        is_candidate[:, 0] = False
        least, place = (blocks_WP / fits_WP).masked_fill(~is_candidate, torch.inf).flatten(-2).min(-1)
        n_columns = blocks_WP.shape[-1]
        return least, place // n_columns + 1, place % n_columns
