"""The maps of each kind of model. Axes: H head, B sentence, Q query token, K key token, M position, S token row."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.formal_languages.data import looked_at_batch, tokens_of
from attnsweep.workloads.formal_languages.encoder import Encoder
from attnsweep.workloads.formal_languages.tokens import N_SYMBOLS, Tokens
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.tasks import OwnText
from attnsweep.workloads.gpt.text import read_text
from attnsweep.workloads.head_maps.maps import LayerMaps, SentenceMaps, chosen
from attnsweep.workloads.head_maps.watched import watched_attention
from attnsweep.workloads.translation.buckets import by_length
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS, TEST, Side
from attnsweep.workloads.translation.data import pairs_of
from attnsweep.workloads.translation.lookup import studied_corpus
from attnsweep.workloads.translation.model import TranslationModel
from attnsweep.workloads.translation.translator import LAYERS

_N_STRINGS = 32
_SYMBOLS = ("0", "1", "CLS")


def head_maps(
    workload: Workload[Any], training: Training[Any], state: State, sentence: int | None = None
) -> SentenceMaps:
    """The attention maps of all heads of one training on one sentence.

    Args:
        workload: Any, a user's too if its attention is that of `attnsweep.Attention`.
        training: Its parameters and seed.
        state: Its parameters and buffers by name.
        sentence: The number of the sentence, from 0. By default a translator reads the first test sentence of median
            length, and others read their first one.

    Raises:
        UserError: If the model has no attention heads, or there is no such sentence.
    """
    if training.parameters.dtype == "bfloat16":
        # As probes measure: rounded to 8 bits, weights would not sum to 1.
        training = replace(training, parameters=replace(training.parameters, dtype="float32"))
    lanes = Lanes([training], torch.device("cpu"))
    module = workload.build(training.parameters).to(lanes.dtype)
    module.load_state_dict(dict(state), strict=False)
    with torch.no_grad():
        match module:
            case TranslationModel():
                return _of_translator(module, lanes, sentence)
            case Encoder():
                return _of_encoder(module, lanes, sentence)
            case FullModel():
                return _of_full_model(module, lanes.shared, workload.eval_batch(lanes)["text"][0], sentence)
            case GPT() if training.parameters.task == OwnText.name:
                words = read_text(training.parameters.corpus).words
                return watched_attention(workload, module, lanes, sentence, words)
        return watched_attention(workload, module, lanes, sentence)


def _of_translator(model: TranslationModel, lanes: Lanes[Any], sentence: int | None) -> SentenceMaps:
    """On the test sentences of its corpus; the decoder reads the correct words."""
    studied = studied_corpus(lanes.shared)
    corpus = studied.corpus
    pairs = studied.held_out(TEST, len(corpus.part))
    lengths = corpus.source.lengths[pairs].tolist()
    median = lengths.index(sorted(lengths)[len(lengths) // 2]) if lengths else 0
    number = chosen(sentence, len(pairs), median)
    (bucket,) = by_length(corpus, pairs[[number]], 1)
    words = pairs_of(studied, torch.as_tensor(bucket.pairs).unsqueeze(0), bucket)
    batch = {name: value[0] for name, value in words.items()}
    attention = model.attention(batch)
    source, read = _words(corpus.source, batch["source"][0]), _words(corpus.target, batch["read"][0])
    asking = {"encoder_self": (source, source), "decoder_self": (read, read), "cross": (read, source)}
    return SentenceMaps(
        number=number,
        n_sentences=len(pairs),
        text=f"{_text(corpus.source, batch['source'][0])} → {_text(corpus.target, batch['target'][0])}",
        layers=tuple(_layer(index, *asking[name], attention[name][0]) for index, name in enumerate(LAYERS)),
    )


def _words(side: Side, tokens_T: Tensor) -> tuple[str, ...]:
    return tuple(side.words[token] for token in tokens_T.tolist())


def _text(side: Side, tokens_T: Tensor) -> str:
    return " ".join(side.words[token] for token in tokens_T.tolist() if token not in (PAD, SOS, EOS))


def _of_encoder(encoder: Encoder, lanes: Lanes[Any], sentence: int | None) -> SentenceMaps:
    """CLS's attention, which heads are scored by, on the strings that they are scored on."""
    number = chosen(sentence, _N_STRINGS)
    batch = {name: value[0] for name, value in looked_at_batch(lanes, _N_STRINGS).items()}
    tokens = tokens_of(batch)
    attention = encoder.trace(tokens)[1]
    keys, is_there_T = _symbols(tokens, number)
    layers = (_layer(at, ("CLS",), keys, each[number][:, None, is_there_T]) for at, each in enumerate(attention))
    return SentenceMaps(number=number, n_sentences=_N_STRINGS, text=", ".join(keys), layers=tuple(layers))


def _symbols(tokens: Tokens, number: int) -> tuple[tuple[str, ...], Tensor]:
    """The tokens of a string, each with the number of equal ones that it stands for, and which of them there are."""
    counts_T = tokens.log_count_BT[number].double().exp().round().long()
    symbols_T = tokens.feature_BTF[number, :, :N_SYMBOLS].argmax(-1)
    named = [
        _SYMBOLS[symbol] + (f" ×{count}" if count > 1 else "")
        for symbol, count in zip(symbols_T.tolist(), counts_T.tolist(), strict=True)
        if count
    ]
    return tuple(named), counts_T > 0


def _of_full_model(
    model: FullModel, parameters: CategoryPairsParameters, text_BM: Tensor, sentence: int | None
) -> SentenceMaps:
    """The weights X^t k^t q X of the head, from position 2 on, where it predicts."""
    number = chosen(sentence, len(text_BM))
    text_M = text_BM[number]
    category_MN = one_hot(text_M, model.n_categories).to(model.v_VV)
    position_MM = torch.eye(model.n_positions).to(model.v_VV)
    token_MS = {
        "solution_1": position_MM,
        "solution_2": category_MN,
        "solution_3": position_MM,
        "combined": torch.cat([category_MN, position_MM], dim=1),
    }[model.variant]
    logit_MM = token_MS @ model.logits() @ token_MS.T
    weight_MM = logit_MM.softmax(0) if parameters.attention_activation == "softmax" else logit_MM
    keys = tuple(str(category + 1) for category in text_M.tolist())
    layer = _layer(0, keys[1:], keys, weight_MM.T[None, 1:])
    return SentenceMaps(number=number, n_sentences=len(text_BM), text=" ".join(keys), layers=(layer,))


def _layer(number: int, queries: tuple[str, ...], keys: tuple[str, ...], weights_HQK: Tensor) -> LayerMaps:
    return LayerMaps(number=number, queries=queries, keys=keys, weights_HQK=weights_HQK.double())
