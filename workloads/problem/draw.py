"""Random numbers for the data of ONE training, as a function of its seed, the step and their use."""

from typing import Self

import torch
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams


class Draw:
    """Draws the random numbers of one training at one step. Successive calls of a method draw different numbers.

    The n-th call draws the same numbers whenever seed, use and step are the same.

    Args:
        seed: () int64, the key of the numbers.
        use: The use of the numbers: `train`, `eval` or `fixed`.
        step: The optimizer step.
        own_seed: () int64, the training's own seed, which is the key of `fixed`; default `seed`.
    """

    def __init__(self, seed: Tensor, use: str, step: int, own_seed: Tensor | None = None) -> None:
        self._own_seed, self._use, self._step = seed if own_seed is None else own_seed, use, step
        self._streams = Streams(seed.unsqueeze(0))
        self._n_calls = 0

    @property
    def fixed(self) -> Self:
        """A `Draw` whose numbers are the same at all steps, in training and evaluation, for what belongs to the
        training's task.
        """
        return type(self)(self._own_seed, "fixed", 0)

    def uniform(self, *shape: int) -> Tensor:
        """Draws float64 values in [0, 1) of the given shape."""
        return self._streams.uniform(self._name(), shape, self._step)[0]

    def normal(self, *shape: int) -> Tensor:
        """Draws float64 standard normal values of the given shape."""
        return self._streams.normal(self._name(), shape, self._step)[0]

    def integers(self, n_values: int, *shape: int) -> Tensor:
        """Draws int64 values, uniform over 0 to n_values - 1, of the given shape."""
        return self._streams.integers(self._name(), shape, n_values, self._step)[0]

    def permutation(self, n: int, *shape: int) -> Tensor:
        """Draws independent permutations of 0 to n - 1, (*shape, n) int64."""
        return torch.argsort(self.uniform(*shape, n), dim=-1)

    def _name(self) -> str:
        self._n_calls += 1
        return f"problem/{self._use}/{self._n_calls}"
