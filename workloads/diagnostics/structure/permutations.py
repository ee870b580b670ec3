"""A control for how much a family can fit by itself: the same distance after the entries of each row are shuffled.

The families are nested and of different sizes, so raw distances cannot be compared between them; a shuffled matrix has
the same rows (the same entropies), and only where they attend is lost. Under a causal mask the shuffle moves mass to
where the mask forbids it: there the test also rejects because of the mask. Axes: T token.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams

N_PERMUTATIONS = 100
_SEED = 0
_ELEMENTS_AT_ONCE = 2**24


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """A distance against that of shuffled matrices.

    Attributes:
        distance: (...) of the matrices themselves.
        mean, deviation: (...) over shuffles.
        z: (...) (distance - mean) / deviation: far below 0 is nearer than chance; NaN where shuffling changes nothing.
    """

    distance: Tensor
    mean: Tensor
    deviation: Tensor

    @property
    def z(self) -> Tensor:
        least = 1e-9 * self.mean.abs().clamp_min(1.0)
        return torch.where(self.deviation > least, (self.distance - self.mean) / self.deviation, torch.nan)


def permutation_test(
    attention: Tensor, distance: Callable[[Tensor], Tensor], n_permutations: int = N_PERMUTATIONS
) -> PermutationTest:
    """Tests (..., T, T) by shuffles that are the same for every matrix, and in every run.

    Args:
        attention: The matrices.
        distance: From (..., T, T) to (...). What is minimised over (w, p) must be so inside it: then the shuffled
            choose theirs too.
        n_permutations: At least 2.
    """
    T = attention.shape[-1]
    n_at_once = max(1, _ELEMENTS_AT_ONCE // attention.numel())
    found = []
    for first in range(0, n_permutations, n_at_once):
        places = torch.stack([_places(T, step) for step in range(first, min(first + n_at_once, n_permutations))])
        shape = (len(places), *attention.shape)
        places = places.view(-1, *[1] * (attention.ndim - 2), T, T).expand(shape).to(attention.device)
        found.append(distance(attention.expand(shape).gather(-1, places)))
    shuffled = torch.cat(found)
    return PermutationTest(distance(attention), shuffled.mean(0), shuffled.std(0))


def shuffled(attention: Tensor, step: int) -> Tensor:
    """(..., T, T) with the entries of each row shuffled, the same way for every matrix; another way for each step."""
    T = attention.shape[-1]
    return attention.gather(-1, _places(T, step).to(attention.device).expand(attention.shape))


@functools.lru_cache(maxsize=4096)
def _places(T: int, step: int) -> Tensor:
    streams = Streams(torch.tensor([_SEED]))
    return streams.uniform("structure.permutation", (T, T), step)[0].argsort(-1)
