"""Attention weights with the tokens they stand between. Axes: H head, Q query token, K key token."""

from dataclasses import dataclass

from torch import Tensor

from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerMaps:
    """The heads of one attention layer on one sentence.

    Attributes:
        number: The layer, as the ledger's column `layer` counts.
        queries, keys: (Q,), (K,) the tokens as text.
        weights_HQK: float64. After a softmax they are >= 0 and sum to 1 over keys, else they may have both signs.
    """

    number: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights_HQK: Tensor

    @property
    def is_square(self) -> bool:
        """Whether each token asks, and may be asked: attention within one sentence."""
        return self.queries == self.keys


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SentenceMaps:
    """All heads of one training on one sentence that no step of the training has seen.

    Attributes:
        number, n_sentences: Which sentence it is, from 0, and of how many.
        text: The sentence.
        layers: The attention layers, as the ledger counts them.
    """

    number: int
    n_sentences: int
    text: str
    layers: tuple[LayerMaps, ...]


def chosen(sentence: int | None, n_sentences: int, otherwise: int = 0) -> int:
    """The number of the sentence.

    Raises:
        UserError: If there is no such sentence.
    """
    number = otherwise if sentence is None else sentence
    if not 0 <= number < n_sentences:
        most = f"0..{n_sentences - 1}" if n_sentences else "a training with test sentences"
        raise UserError(
            "--sentence", given=number, expected=most, fix="choose another" if n_sentences else "its corpus has none"
        )
    return number
