"""The attention of any model that is made of `attnsweep.Attention`, read off while it answers.

Axes: H head, B sentence, T token.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from attnsweep.workloads.attention.attention import Attention
from attnsweep.workloads.engine.contract import Batch, Lanes, Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.head_maps.maps import LayerMaps, SentenceMaps, chosen


def watched_attention(
    workload: Workload[Any], module: nn.Module, lanes: Lanes[Any], sentence: int | None, words: Sequence[str] = ()
) -> SentenceMaps:
    """The maps of all `Attention` in a module, in the order in which they answer, on a held-out sentence.

    Args:
        workload: Gives the held-out batch. Its `token` (B, T), if it has one, names the tokens, else their positions.
        module: With the trained parameters; it is watched from now on.
        lanes: The one training.
        sentence: The sentence's number in the batch; default 0.
        words: The vocabulary; without it tokens are numbers.

    Raises:
        UserError: If the module has no such attention, or there is no such sentence.
    """
    watched: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, _: object, result: tuple[Tensor, Tensor]) -> None:
        watched[module] = result[1].detach()

    has_heads = [each.register_forward_hook(keep) for each in module.modules() if isinstance(each, Attention)]
    batch = {name: value[0] for name, value in workload.eval_batch(lanes).items()} if has_heads else {}
    if has_heads:
        workload.eval_loss(module, batch | workload.answers(module, batch))
    if not watched:
        raise UserError(
            "TRAINING_ID",
            given=f"a training of {workload.name}",
            expected="one with attention heads",
            fix="a workload of your own has maps if its heads are attnsweep.Attention",
        )
    weights = list(watched.values())
    number = chosen(sentence, len(weights[0]))
    tokens = _tokens(batch, number, weights[0].shape[-1], words)
    layers = (
        LayerMaps(number=at, queries=tokens, keys=tokens, weights_HQK=each[number].double())
        for at, each in enumerate(weights)
    )
    return SentenceMaps(number=number, n_sentences=len(weights[0]), text=" ".join(tokens), layers=tuple(layers))


def _tokens(batch: Batch, number: int, n_tokens: int, words: Sequence[str]) -> tuple[str, ...]:
    token_BT = batch.get("token")
    if token_BT is None or token_BT.dim() != 2 or token_BT.shape[1] != n_tokens:
        return tuple(map(str, range(1, n_tokens + 1)))
    return tuple(words[token] if words else str(token) for token in token_BT[number].tolist())
