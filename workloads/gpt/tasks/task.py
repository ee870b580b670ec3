"""What a GPT is to predict, and the laws that its loss is compared with.

Axes: L lane, B sequence, T token, V word.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams

Laws = dict[str, Tensor]
"""What defines the distributions of L trainings: tensors (L, ...) by name."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sequences of tokens with what is to be predicted at each.

    Attributes:
        token_LBT, target_LBT: int64, below V.
        counts_LBT: bool, whether the prediction at this token counts in the loss.
    """

    token_LBT: Tensor
    target_LBT: Tensor
    counts_LBT: Tensor


class Task(ABC):
    """A distribution of sequences for each training, drawn from the training's own streams."""

    name: ClassVar[str]
    summary: ClassVar[str]
    reference_names: ClassVar[tuple[str, ...]] = ("constant", "current")
    """The reference predictors that are no solution, from the worst to the best."""

    def check(self, n_words: int, n_tokens: int) -> None:
        """Checks that the sizes fit the task.

        Raises:
            SpecError: If they do not.
        """
        del n_words, n_tokens

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor) -> Laws:
        """The distributions; none if those of all trainings are the same.

        Args:
            streams: Those of the L trainings.
            n_words: V.
            contrast_L: The parameter `chain_contrast`, float64.
        """
        del streams, n_words, contrast_L
        return {}

    @abstractmethod
    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        """Random sequences.

        Args:
            streams: Those of the L trainings.
            name: The name of the stream.
            laws: From `laws`.
            n_words: V.
            shape: B and T.
            step: The step.
        """

    @abstractmethod
    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        """-log p of the targets, (L, B, T) float64, under predictors by name; only those that count have a meaning.

        They are `constant`, the best prediction that does not depend on the input; `current`, the best that depends on
        the current token alone; `optimum`, the best of all; and further ones among `reference_names`.
        """

    def needs_previous(self, drawn: Sequences) -> Tensor:
        """(L, B, T) bool, the tokens whose predecessor matters: where a previous-token head is scored."""
        return drawn.counts_LBT


def entropy(law: Tensor) -> Tensor:
    """(...) entropy in nats of laws (..., V)."""
    return -torch.xlogy(law, law).sum(-1)


def nats(law_LN: Tensor, index_LBT: Tensor) -> Tensor:
    """(L, B, T) -log p of indices below N."""
    log_p = law_LN.log().gather(1, index_LBT.flatten(1))
    return -log_p.view(index_LBT.shape)
