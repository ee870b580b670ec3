"""Attention weights with the tokens they stand between, read off a model.

Axes: B sentence, H head, Q query token, K key token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor, nn

from attnsweep.workloads.attention.attention import Attention
from attnsweep.workloads.attention_weights import seen_weights
from attnsweep.workloads.engine.contract import Batch, Workload
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

    @classmethod
    def of(cls, number: int, queries: tuple[str, ...], keys: tuple[str, ...], weights_HQK: Tensor) -> Self:
        """Maps in float64, whatever the weights were computed in."""
        return cls(number=number, queries=queries, keys=keys, weights_HQK=weights_HQK.double())

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


def watched_attention(workload: Workload[Any], module: nn.Module, batch: Batch) -> list[Tensor]:
    """The weights (B, H, Q, K) of all `attnsweep.Attention` in a module, in the order in which they answer on a batch;
    in a module without one, those of its softmaxes.

    Args:
        workload: Makes the module answer.
        module: With the trained parameters; it is watched from now on.
        batch: The data.
    """
    watched: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, _: object, result: tuple[Tensor, Tensor]) -> None:
        watched[module] = result[1].detach()

    def answer() -> None:
        workload.eval_loss(module, batch | workload.answers(module, batch))

    if [each.register_forward_hook(keep) for each in module.modules() if isinstance(each, Attention)]:
        answer()
        return list(watched.values())
    return seen_weights(answer)


def maps_of_batch(
    weights: Sequence[Tensor], batch: Batch, sentence: int | None, words: Sequence[str] = ()
) -> SentenceMaps:
    """The maps of one sentence of a batch.

    Args:
        weights: (B, H, T, T) of each layer.
        batch: Its `token` (B, T), if it has one, names the tokens, else their positions do.
        sentence: The sentence's number in the batch; default 0.
        words: The vocabulary; without it tokens are numbers.

    Raises:
        UserError: If there is no such sentence.
    """
    number = chosen(sentence, len(weights[0]))
    tokens = _tokens(batch, number, weights[0].shape[-1], words)
    layers = (LayerMaps.of(at, tokens, tokens, each[number]) for at, each in enumerate(weights))
    return SentenceMaps(number=number, n_sentences=len(weights[0]), text=" ".join(tokens), layers=tuple(layers))


def _tokens(batch: Batch, number: int, n_tokens: int, words: Sequence[str]) -> tuple[str, ...]:
    token_BT = batch.get("token")
    if token_BT is None or token_BT.dim() != 2 or token_BT.shape[1] != n_tokens:
        return tuple(map(str, range(1, n_tokens + 1)))
    return tuple(words[token] if words else str(token) for token in token_BT[number].tolist())
