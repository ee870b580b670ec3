"""How `attnsweep heads` draws a translator: attention maps on a test sentence. Axes: T token."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Lanes, Workload
from attnsweep.workloads.head_maps import LayerMaps, SentenceMaps, chosen
from attnsweep.workloads.lenses import Lenses
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS, TEST, Side
from attnsweep.workloads.translation.data import by_length, pairs_of, studied_corpus
from attnsweep.workloads.translation.model import TranslationModel
from attnsweep.workloads.translation.translator import LAYERS


def _maps(workload: Workload[Any], model: nn.Module, lanes: Lanes[Any], sentence: int | None) -> SentenceMaps:
    del workload
    studied = studied_corpus(lanes.shared)
    corpus = studied.corpus
    pairs = studied.held_out(TEST, len(corpus.part))
    lengths = corpus.source.lengths[pairs].tolist()
    median = lengths.index(sorted(lengths)[len(lengths) // 2]) if lengths else 0
    number = chosen(sentence, len(pairs), median)
    (bucket,) = by_length(corpus, pairs[[number]], 1)
    words = pairs_of(studied, torch.as_tensor(bucket.pairs).unsqueeze(0), bucket)
    batch = {name: value[0] for name, value in words.items()}
    attention = cast(TranslationModel, model).attention(batch)
    source, read = _words(corpus.source, batch["source"][0]), _words(corpus.target, batch["read"][0])
    queries_and_keys = {"encoder_self": (source, source), "decoder_self": (read, read), "cross": (read, source)}
    return SentenceMaps(
        number=number,
        n_sentences=len(pairs),
        text=f"{_text(corpus.source, batch['source'][0])} → {_text(corpus.target, batch['target'][0])}",
        layers=tuple(
            LayerMaps.of(index, *queries_and_keys[name], attention[name][0]) for index, name in enumerate(LAYERS)
        ),
    )


def _words(side: Side, tokens_T: Tensor) -> tuple[str, ...]:
    return tuple(side.words[token] for token in tokens_T.tolist())


def _text(side: Side, tokens_T: Tensor) -> str:
    return " ".join(side.words[token] for token in tokens_T.tolist() if token not in (PAD, SOS, EOS))


LENSES = Lenses(maps=_maps, layer_names=LAYERS)
