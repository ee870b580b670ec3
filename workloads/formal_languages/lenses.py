"""How `attnsweep heads` draws an encoder: the attention of the CLS query on a string."""

from typing import Any, cast

from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Lanes, Workload
from attnsweep.workloads.formal_languages.data import looked_at_batch, tokens_of
from attnsweep.workloads.formal_languages.encoder import Encoder
from attnsweep.workloads.formal_languages.language import N_SYMBOLS, Tokens
from attnsweep.workloads.head_maps import LayerMaps, SentenceMaps, chosen
from attnsweep.workloads.lenses import Lenses

_N_STRINGS = 32
_SYMBOLS = ("0", "1", "CLS")


def _maps(workload: Workload[Any], encoder: nn.Module, lanes: Lanes[Any], sentence: int | None) -> SentenceMaps:
    del workload
    number = chosen(sentence, _N_STRINGS)
    batch = {name: value[0] for name, value in looked_at_batch(lanes, _N_STRINGS).items()}
    tokens = tokens_of(batch)
    attention = cast(Encoder, encoder).trace(tokens)[1]
    keys, is_there_T = _symbols(tokens, number)
    layers = (
        LayerMaps.of(layer, ("CLS",), keys, weight_BHT[number][:, None, is_there_T])
        for layer, weight_BHT in enumerate(attention)
    )
    return SentenceMaps(number=number, n_sentences=_N_STRINGS, text=", ".join(keys), layers=tuple(layers))


def _symbols(tokens: Tokens, number: int) -> tuple[tuple[str, ...], Tensor]:
    counts_T = tokens.log_count_BT[number].double().exp().round().long()
    symbols_T = tokens.feature_BTF[number, :, :N_SYMBOLS].argmax(-1)
    named = [
        _SYMBOLS[symbol] + (f" ×{count}" if count > 1 else "")
        for symbol, count in zip(symbols_T.tolist(), counts_T.tolist(), strict=True)
        if count
    ]
    return tuple(named), counts_T > 0


LENSES = Lenses(maps=_maps, least_examples=512)
