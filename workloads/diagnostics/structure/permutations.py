"""A control for the flexibility of a family: the distance to the family after the entries of each row are shuffled.

The families are nested and of different sizes, so distances to different families cannot be compared directly. A
shuffled matrix keeps the entries of each row (and so its entropy) but loses the positions they attend to. Under a
causal mask such a shuffle would move mass to masked positions, and a matrix would look nearer than chance because of
the mask alone: `is_causal` shuffles within the mask. Axes: T token, S shuffle.
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
    """How the distances of matrices to a family compare with the distances of shuffled matrices.

    Attributes:
        distance: (...) the distances of the matrices.
        mean, deviation: (...) mean and standard deviation of the distances of the shuffles.
        z: (...) (distance - mean) / deviation: far below 0 means nearer than chance; NaN if shuffling changes nothing.
    """

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
    """Compares the distance of matrices with that of shuffled matrices. All matrices and runs share the permutations.

    Args:
        attention: (..., T, T) the matrices.
        distance: A function from (..., T, T) to (...). If the distance is a minimum over (w, p), the function must take
            the minimum, so that it is also taken for each shuffle.
        n_permutations: The number of shuffles, at least 2.
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
    """Shuffles each matrix (..., T, T) `n_shuffles` times, by permuting the entries of each row: (..., S, T, T). The
    permutations are the same for all matrices.
    """
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
        # The keys after the query keep their places: their sort keys are larger than all others and ascend.
        order_TT = torch.where(torch.ones(T, T).triu(1) > 0, 1.0 + torch.arange(T), order_TT)
    return order_TT.argsort(-1)
