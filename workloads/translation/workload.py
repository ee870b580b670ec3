"""The workload of one-block encoder-decoders that learn to translate a small grammar's sentences, or a user's parallel
text. Axes: L lane, B sentence, T target token, V word."""

import math
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from attnsweep.workloads.engine import outcomes
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes, Workload
from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.schedule import probe_steps
from attnsweep.workloads.engine.verdicts import Condition, Rule, VerdictTable
from attnsweep.workloads.head_maps import SentenceMaps, chosen
from attnsweep.workloads.lenses import Lenses
from attnsweep.workloads.translation.corpus import PAD, SPECIALS, TEST, UNK
from attnsweep.workloads.translation.data import (
    by_length,
    evaluation_batch,
    pairs_of,
    parts_of,
    studied_corpus,
    training_batches,
)
from attnsweep.workloads.translation.head_scores import SCORE_NAMES, score_heads
from attnsweep.workloads.translation.model import TranslationModel, xaviers_law
from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.translator import LAYERS
from attnsweep.workloads.translation.writing import bleu_scores

SOLVED_SHARE = 0.05
"""A training is solved if its loss exceeds that of the grammar's own distribution by less than this share of the
information in the source: of the difference to the loss of the distribution without it. Our choice."""
IGNORES_SOURCE = 0.01
"""The output ignores the source if another sentence's changes the loss by less, in nats per token. Our choice."""


def _ignores_source(_: object, evidence: Evidence) -> NDArray[np.bool_]:
    return np.abs(evidence.metrics["source_gain"]) < IGNORES_SOURCE


def _no_better_than(level: str) -> Condition:
    """The source is ignored, and the loss is not clearly below that of `level`."""

    def holds(_: object, evidence: Evidence) -> NDArray[np.bool_]:
        lowest = (1.0 - outcomes.AT_LEVEL) * evidence.levels[level][:, None]
        return _ignores_source(_, evidence) & (evidence.metrics["eval_loss"] > lowest)

    return holds


VERDICTS = VerdictTable(
    (
        Rule.diverged("uniform"),
        Rule.solved(),
        Rule(outcome="overfit", when=lambda _, evidence: outcomes.is_overfit(evidence)),
        Rule(outcome="degenerate_zero", details=("unigram",), when=_no_better_than("unigram")),
        Rule(outcome="degenerate_zero", details=("bigram",), when=_no_better_than("bigram")),
        Rule(outcome="marginal", details=("language_model",), when=_ignores_source),
        Rule.moving(),
    )
)


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
    names = {side: [getattr(corpus, of).words[word] for word in batch[side][0].tolist()] for side, of in _SIDES.items()}
    source, read, target = (names[side] for side in _SIDES)
    layers = {"encoder_self": (source, source), "decoder_self": (read, read), "cross": (read, source)}
    text = " → ".join(" ".join(word for word in words if word not in SPECIALS[:UNK]) for words in (source, target))
    maps = ((*layers[name], attention[name][0]) for name in LAYERS)
    return SentenceMaps.of(number, len(pairs), text, *maps)


_SIDES = {"source": "source", "read": "target", "target": "target"}


class Translation(Workload[TranslationParameters]):
    name = "translation"
    parameters = TranslationParameters
    summary = "one-block translators: which heads take which role, and when (Conti 2024; Voita et al. 2019)"
    level_names = ("uniform", "unigram", "bigram", "language_model", "grammar")
    head_score_names = SCORE_NAMES
    lenses: ClassVar[object] = Lenses(maps=_maps, layer_names=LAYERS)
    verdicts = VERDICTS

    def build(self, parameters: TranslationParameters) -> TranslationModel:
        return TranslationModel(parameters, studied_corpus(parameters))

    def initial(self, module: nn.Module, lanes: Lanes[TranslationParameters]) -> State:
        sigma_L = lanes.tensor("init_sigma", torch.float64)
        return draw_parameters(module, sigma_L, lanes.streams, law=xaviers_law(lanes.streams))

    def batch(self, lanes: Lanes[TranslationParameters], step: int) -> Batch:
        return training_batches(lanes, range(step, step + 1))[0]

    def batches(self, lanes: Lanes[TranslationParameters], steps: range) -> list[Batch]:
        return training_batches(lanes, steps)

    def probe_steps(self, parameters: TranslationParameters) -> tuple[int, ...]:
        """By default 0, `n_steps`, its half, its quarter and so on: many early ones, because roles emerge early or not
        at all."""
        if parameters.probe_every is not None:
            return probe_steps(parameters.n_steps, parameters.probe_every)
        halvings = {round(parameters.n_steps / 2**k) for k in range(parameters.n_probes - 1)}
        return tuple(sorted({0, *halvings}))

    def eval_batch(self, lanes: Lanes[TranslationParameters]) -> Batch:
        return evaluation_batch(lanes)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        model = cast(TranslationModel, module)
        return smoothed_loss(model(batch), batch["target"], model.label_smoothing)

    def evaluate(self, module: nn.Module, batch: Batch) -> Batch:
        """The cross-entropy in nats per token, without label smoothing, of the pairs that are judged; and for each
        bucket the logits, `<bucket>/logit`, (B, T, V), and the targets' -log p, `<bucket>/nats`, (B, T)."""
        answers: Batch = {}
        for index, part in enumerate(parts_of(batch)):
            logit = module(part)
            answers |= {f"{index}/logit": logit, f"{index}/nats": word_nats(logit, part["target"])}
        return answers | {"eval_loss": mean_over(parts_of(batch | answers), "nats", "is_judged")}

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The cross-entropy on short and long sentences, the accuracy on these and all, and `source_gain`: the nats per
        token by which the loss rises with another pair's source."""
        parts = []
        for part in parts_of(batch):
            elsewhere = part | {name: part[name].roll(1, 0) for name in ("source", "source_rarity")}
            parts.append(
                part
                | {
                    "is_long": ~part["is_short"],
                    "right": (part["logit"].argmax(-1) == part["target"]) * (part["target"] != PAD),
                    "nats_elsewhere": word_nats(module(elsewhere), part["target"]),
                }
            )
        gain = mean_over(parts, "nats_elsewhere", "is_judged") - mean_over(parts, "nats", "is_judged")
        measured = {"source_gain": gain, "token_accuracy": mean_over(parts, "right")}
        for length in ("short", "long"):
            measured[f"cross_entropy_{length}"] = mean_over(parts, "nats", f"is_{length}")
            measured[f"token_accuracy_{length}"] = mean_over(parts, "right", f"is_{length}")
        return measured

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """On the held-out sentences: `uniform`, `unigram` and `bigram`; with the grammar also its own distribution of
        the target given the source, `grammar`, and without it, `language_model`. All but the last are smoothed like the
        labels. For real text `solved` is NaN."""
        model = cast(TranslationModel, module)
        smoothing, n_words = model.label_smoothing, model.translator.shape.n_target_words
        parts = parts_of(batch)
        for name in ("unigram", "bigram", "grammar"):
            for part in parts:
                if f"{name}_nats" in part:
                    part[name] = smoothed_nats(part[f"{name}_nats"], smoothing, n_words) * (part["target"] != PAD)
        levels = {name: mean_over(parts, name, "is_judged") for name in ("unigram", "bigram")}
        levels["uniform"] = torch.full_like(levels["unigram"], math.log(n_words))
        levels["solved"] = torch.full_like(levels["unigram"], torch.nan)
        if "grammar" in parts[0]:
            for part in parts:
                per_token = part["sentence_nats"] / (part["target"] != PAD).sum(1)
                part["sentence"] = per_token.unsqueeze(1) * (part["target"] != PAD)
            levels["grammar"] = mean_over(parts, "grammar", "is_judged")
            levels["language_model"] = mean_over(parts, "sentence", "is_judged")
            source_nats = levels["language_model"] - levels["grammar"]
            levels["solved"] = levels["grammar"] + SOLVED_SHARE * source_nats
        return levels

    def score_heads(self, lanes: Lanes[TranslationParameters], state: State) -> HeadScores | None:
        if not lanes.shared.head_sentences:
            return None
        return score_heads(self.build(lanes.shared).to(lanes.device, lanes.dtype), lanes, state)

    def final_metrics(self, lanes: Lanes[TranslationParameters], state: State) -> dict[str, NDArray[np.float64]]:
        return bleu_scores(lanes, state)


def smoothed_loss(logit_BTV: Tensor, target_BT: Tensor, label_smoothing: Tensor) -> Tensor:
    """In nats per token, without padding: the target is 1 - e at the word plus e spread evenly over all V words, as in
    `torch.nn.CrossEntropyLoss`. Source: Szegedy et al. 2016, section 7."""
    log_p_BTV = log_softmax(logit_BTV, dim=-1)
    word_log_p_BT = log_p_BTV.gather(-1, target_BT.unsqueeze(-1)).squeeze(-1)
    nats_BT = -(1.0 - label_smoothing) * word_log_p_BT - label_smoothing * log_p_BTV.mean(-1)
    counts_BT = target_BT != PAD
    return (nats_BT * counts_BT).sum() / counts_BT.sum()


def word_nats(logit_BTV: Tensor, target_BT: Tensor) -> Tensor:
    """-log p of each target word, (B, T), without label smoothing; 0 at padding."""
    nats_BT = -log_softmax(logit_BTV, dim=-1).gather(-1, target_BT.unsqueeze(-1)).squeeze(-1)
    return nats_BT * (target_BT != PAD)


def mean_over(parts: list[Batch], value: str, among: str | None = None) -> Tensor:
    """The mean over the target tokens of all buckets; of the sentences that the bool `among` selects, NaN if none.
    `value` is the name of a tensor (B, T), 0 at padding."""
    total, count = [], []
    for part in parts:
        counts_BT = part["target"] != PAD
        if among is not None:
            counts_BT = counts_BT & part[among].unsqueeze(1)
        total.append((part[value] * counts_BT).sum())
        count.append(counts_BT.sum())
    return torch.stack(total).sum() / torch.stack(count).sum()


def smoothed_nats(nats: Tensor, label_smoothing: Tensor, n_words: int) -> Tensor:
    """A simple predictor's -log p with smoothing e over V words: -log((1 - e) p + e / V)."""
    return -((1.0 - label_smoothing) * torch.exp(-nats) + label_smoothing / n_words).log()
