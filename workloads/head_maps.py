"""The attention weights of a model's heads on one sentence. Axes: B sentence, T token, H head, Q query, K key."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnsweep.workloads.attention.attention import Attention
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.plain_forms import attention, multi_head_attention
from attnsweep.workloads.errors import SpecError, UserError

_SOFTMAXES = (functional.softmax, torch.softmax, Tensor.softmax)
_AXES = 4


def attention_weights(module: nn.Module, *arguments: Any) -> Tensor:
    """Calls a module and returns the attention weights of its layers, (n_layers, n_sentences, n_heads, n_queries,
    n_keys), in the order in which they are computed.

    Layers are `attnsweep.Attention`, or where there is none, softmaxes: those of `nn.MultiheadAttention`, of
    `scaled_dot_product_attention`, of the models of Hugging Face and TransformerLens, and of any code that takes a
    softmax over the last axis of a tensor (n_sentences, n_heads, n_queries, n_keys). Fits as the argument `attention`
    of `score_patterns`; `Lenses.attention` takes `torch.unbind` of the result.

    Raises:
        SpecError: If there is no such softmax, or the shapes of the weights differ between layers.
    """
    weights = seen_weights(module, lambda: module(*arguments))
    shapes = {tuple(layer.shape) for layer in weights}
    if len(shapes) != 1:
        given = f"softmaxes of shapes {sorted(shapes)}" if weights else "no softmax of (sequence, head, token, token)"
        fix = "pass a function of the module and the tokens that returns the weights of all layers, stacked"
        subject, expected = f"the attention of {type(module).__name__}", "attention weights of one shape in all layers"
        raise SpecError(subject, given=given, expected=expected, fix=fix)
    return torch.stack(weights)


def seen_weights(module: nn.Module, call: Callable[[], object]) -> list[Tensor]:
    """The weights of a module's `attnsweep.Attention` layers while `call` calls it; without these, the results with
    four axes of softmaxes over the last one."""
    of_layers: dict[nn.Module, Tensor] = {}

    def keep(layer: nn.Module, _: object, result: tuple[Tensor, Tensor]) -> None:
        of_layers[layer] = result[1].detach()

    hooks = [part.register_forward_hook(keep) for part in module.modules() if isinstance(part, Attention)]
    with _Watch() as watch:
        call()
    for hook in hooks:
        hook.remove()
    if hooks:
        return list(of_layers.values())
    return [weights for weights in watch.seen if weights.dim() == _AXES]


class _Watch(TorchFunctionMode):
    """Within, `seen` gets the result of every softmax over the last axis."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            with self:
                return attention(*args, **options)
        if func is functional.multi_head_attention_forward:
            with self:
                return self._of_heads(*args, **options)
        result = func(*args, **options)
        if func in _SOFTMAXES:
            axis = options["dim"] if "dim" in options else args[1]
            if axis in (-1, result.dim() - 1):
                self.seen.append(result)
        return result

    def _of_heads(
        self, *args: Any, need_weights: bool = True, average_attn_weights: bool = True, **options: Any
    ) -> Any:
        """With weights, PyTorch would take a softmax in which sentences and heads share an axis."""
        output, _ = multi_head_attention(*args, **options, need_weights=False)
        weights = self.seen[-1]
        return output, (weights.mean(1) if average_attn_weights else weights) if need_weights else None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerMaps:
    """The maps of one layer on one sentence. `number` is the ledger's `layer`; weights, in float64, may have both signs
    without softmax."""

    number: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights_HQK: Tensor

    @property
    def is_square(self) -> bool:
        return self.queries == self.keys


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SentenceMaps:
    """The maps of all heads of one training on held-out sentence `number` (from 0) of `n_sentences`."""

    number: int
    n_sentences: int
    text: str
    layers: tuple[LayerMaps, ...]

    @classmethod
    def of(cls, number: int, n_sentences: int, text: str, *layers: tuple[Sequence[str], Sequence[str], Tensor]) -> Self:
        """`layers`: the names of queries and of keys, and the weights, (H, Q, K)."""
        maps = (
            LayerMaps(number=at, queries=tuple(queries), keys=tuple(keys), weights_HQK=weights_HQK.double())
            for at, (queries, keys, weights_HQK) in enumerate(layers)
        )
        return cls(number=number, n_sentences=n_sentences, text=text, layers=tuple(maps))


def chosen(sentence: int | None, n_sentences: int, otherwise: int = 0) -> int:
    """The number of the sentence that the user chose, or `otherwise`; refused if there is none."""
    number = otherwise if sentence is None else sentence
    if not 0 <= number < n_sentences:
        expected = f"0..{n_sentences - 1}" if n_sentences else "a training with test sentences"
        raise UserError("--sentence", given=number, expected=expected, fix="choose another number or training")
    return number


def maps_of_batch(
    weights: Sequence[Tensor], batch: Batch, sentence: int | None, words: Sequence[str] = ()
) -> SentenceMaps:
    """The maps of one sentence of a batch.

    Args:
        weights: Of every layer, (B, H, T, T).
        batch: Its entry `token`, or a problem's first input, gives the tokens, (B, T); without, positions from 1 do.
        words: The vocabulary; without it tokens are shown as numbers.
    """
    number = chosen(sentence, len(weights[0]))
    tokens = _tokens(batch, number, weights[0].shape[-1], words)
    layers = ((tokens, tokens, layer[number]) for layer in weights)
    return SentenceMaps.of(number, len(weights[0]), " ".join(tokens), *layers)


def _tokens(batch: Batch, number: int, n_tokens: int, words: Sequence[str]) -> tuple[str, ...]:
    token_BT = batch.get("token", batch.get("inputs/0"))
    if token_BT is None or token_BT.dim() != 2 or token_BT.shape[1] != n_tokens:
        return tuple(map(str, range(1, n_tokens + 1)))
    return tuple(words[token] if words else str(token) for token in token_BT[number].tolist())
