"""The losses of translators; models that answer by a reference law reach its level. Axes: B sentence, T token, V
word."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.translation import TranslationParameters
from attnsweep.workloads.translation.corpus import PAD, SOS
from attnsweep.workloads.translation.data import parts_of, studied_corpus
from attnsweep.workloads.translation.workload import mean_over, smoothed_loss, word_nats
from tests.workloads.translation.small_translation import WORKLOAD, lanes, random_model, small

CASES: list[dict[str, Value]] = [{}, {"label_smoothing": 0.0}, {"train_on": "short", "label_smoothing": 0.3}]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.7])
def test_the_smoothed_loss_is_that_of_torch(label_smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logit = torch.randn(5, 7, 11, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 11, (5, 7), generator=generator)
    target[2:, 4:] = PAD
    ours = smoothed_loss(logit, target, torch.tensor(label_smoothing, dtype=torch.float64))
    theirs = cross_entropy(logit.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=label_smoothing)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(each, logit)[0] for each in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)
    nats = word_nats(logit, target)
    assert not nats[target == PAD].any()
    plain = cross_entropy(logit.flatten(0, 1), target.flatten(), ignore_index=PAD)
    torch.testing.assert_close(nats.sum() / (target != PAD).sum(), plain)


def test_means_are_over_tokens_of_all_buckets() -> None:
    parts = [
        {
            "target": torch.tensor([[4, 4, PAD], [4, PAD, PAD]]),
            "x": torch.tensor([[1.0, 2.0, 9.0], [4.0, 9.0, 9.0]]),
            "is_in": torch.tensor([True, False]),
        },
        {"target": torch.tensor([[4]]), "x": torch.tensor([[5.0]]), "is_in": torch.tensor([True])},
    ]
    assert mean_over(parts, "x").item() == pytest.approx(12 / 4)
    assert mean_over(parts, "x", "is_in").item() == pytest.approx(8 / 3)
    nobody = [part | {"is_in": torch.zeros_like(part["is_in"])} for part in parts]
    assert mean_over(nobody, "x", "is_in").isnan()


class Law(nn.Module):
    """A model that answers with given probabilities.

    Args:
        log_p: (B, T, V) log-probabilities of a batch.
        parameters: Of the training that it stands for.
    """

    def __init__(self, log_p: Callable[[Batch], Tensor], parameters: TranslationParameters) -> None:
        super().__init__()
        self.log_p = log_p
        self.translator = WORKLOAD.build(parameters).translator
        self.label_smoothing = torch.tensor(parameters.label_smoothing, dtype=torch.float64)

    def forward(self, batch: Batch) -> Tensor:
        return self.log_p(batch)


def _smoothed(p_V: Tensor, parameters: TranslationParameters) -> Tensor:
    e = parameters.label_smoothing
    return ((1 - e) * p_V + e / p_V.shape[-1]).log()


def _unigram(parameters: TranslationParameters) -> Callable[[Batch], Tensor]:
    """Relative frequencies, with one additional occurrence spread over all words."""
    log_p_V = _smoothed(_frequencies(parameters), parameters)
    return lambda batch: log_p_V.expand(*batch["target"].shape, -1)


def _frequencies(parameters: TranslationParameters) -> Tensor:
    studied = studied_corpus(parameters)
    seen = Counter(studied.corpus.target.tokens[studied.train].ravel().tolist())
    del seen[PAD]
    V = len(studied.corpus.target.words)
    return torch.tensor([(seen[word] + 1 / V) / (seen.total() + 1) for word in range(V)], dtype=torch.float64)


def _bigram(parameters: TranslationParameters) -> Callable[[Batch], Tensor]:
    studied = studied_corpus(parameters)
    unigram_V = _frequencies(parameters)
    seen_VV = torch.zeros(len(unigram_V), len(unigram_V), dtype=torch.float64)
    for tokens in studied.corpus.target.tokens[studied.train].tolist():
        before = SOS
        for word in tokens:
            if word != PAD:
                seen_VV[before, word] += 1
            before = word
    log_p_VV = _smoothed((seen_VV + unigram_V) / (seen_VV.sum(1, keepdim=True) + 1), parameters)
    return lambda batch: log_p_VV[batch["read"]]


def _grammar(parameters: TranslationParameters) -> Callable[[Batch], Tensor]:
    """The grammar's own law of the target word; the remaining probability is spread over the others."""

    def log_p(batch: Batch) -> Tensor:
        V = len(studied_corpus(parameters).corpus.target.words)
        p_BT1 = torch.exp(-batch["grammar_nats"]).unsqueeze(-1)
        rest = (1 - p_BT1) / (V - 1)
        law = rest.expand(*p_BT1.shape[:2], V).scatter(-1, batch["target"].unsqueeze(-1), p_BT1)
        return _smoothed(law, parameters)

    return log_p


def _eval_batch(parameters: TranslationParameters) -> Batch:
    return {name: value[0] for name, value in WORKLOAD.eval_batch(lanes(parameters)).items()}


@pytest.mark.parametrize("values", CASES)
def test_reference_laws_pay_their_levels(values: dict[str, Value]) -> None:
    parameters = small(dtype="float64", **values)
    batch = _eval_batch(parameters)
    laws = {
        "uniform": lambda batch: torch.zeros(*batch["target"].shape, len(_frequencies(parameters))).double(),
        "unigram": _unigram(parameters),
        "bigram": _bigram(parameters),
        "grammar": _grammar(parameters),
    }
    levels = WORKLOAD.levels(Law(laws["uniform"], parameters), batch)
    for name, law in laws.items():
        model = Law(law, parameters)
        paid = WORKLOAD.evaluate(model, batch)["eval_loss"]
        assert paid.item() == pytest.approx(levels[name].item(), rel=1e-12), name


@pytest.mark.parametrize("train_on", ["all", "short"])
def test_measures_are_over_the_sentences_that_they_name(train_on: str) -> None:
    parameters = small(dtype="float64", train_on=train_on)
    model = random_model(parameters)
    batch = _eval_batch(parameters)
    nats, right, elsewhere, is_short = [], [], [], []
    for part in parts_of(batch):
        other = part | {name: torch.cat([part[name][-1:], part[name][:-1]]) for name in ("source", "source_rarity")}
        log_p, log_p_elsewhere = (model(each).log_softmax(-1) for each in (part, other))
        for b, words in enumerate(part["target"].tolist()):
            places = [(b, t, word) for t, word in enumerate(words) if word != PAD]
            nats.append([-log_p[place].item() for place in places])
            elsewhere.append([-log_p_elsewhere[place].item() for place in places])
            right.append([bool(log_p[b, t].argmax() == word) for _, t, word in places])
        is_short += part["is_short"].tolist()

    def mean(values: Sequence[Sequence[float]], among: list[bool]) -> float:
        return float(np.mean([each for row, is_in in zip(values, among, strict=True) if is_in for each in row]))

    everyone, is_long = [True] * len(is_short), [not each for each in is_short]
    judged = everyone if train_on == "all" else is_short
    expected = {
        "source_gain": mean(elsewhere, judged) - mean(nats, judged),
        "token_accuracy": mean(right, everyone),
        "cross_entropy_short": mean(nats, is_short),
        "cross_entropy_long": mean(nats, is_long),
        "token_accuracy_short": mean(right, is_short),
        "token_accuracy_long": mean(right, is_long),
    }
    batch |= WORKLOAD.evaluate(model, batch)
    found = {name: value.item() for name, value in WORKLOAD.measure(model, batch).items()}
    assert found == pytest.approx(expected)
    assert batch["eval_loss"].item() == pytest.approx(mean(nats, judged))
