"""The data of a pack: each sentence once per pass, in the training's own order, whatever else is in the pack.

Axes: L lane, B sentence, N sentence pair.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
import torch

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.translation import TranslationParameters
from attnsweep.workloads.translation.corpus import PAD, TEST, TRAIN, VALID
from attnsweep.workloads.translation.data import Passes, StudiedCorpus, parts_of, studied_corpus
from tests.workloads.translation.small_translation import WORKLOAD, lanes, small

Pair = tuple[tuple[int, ...], tuple[int, ...]]


def _pair(source: Iterable[int], target: Iterable[int]) -> Pair:
    words = [tuple(int(word) for word in side if word != PAD) for side in (source, target)]
    return words[0], words[1]


def _pairs(batch: Batch, lane: int = 0) -> list[Pair]:
    return [_pair(*pair) for pair in zip(batch["source"][lane].tolist(), batch["target"][lane].tolist(), strict=True)]


def _known(studied: StudiedCorpus, pairs: np.ndarray) -> Counter[Pair]:
    return Counter(_pair(studied.corpus.source.tokens[n], studied.corpus.target.tokens[n]) for n in pairs)


def _steps_of_pass(parameters: TranslationParameters) -> int:
    studied = studied_corpus(parameters)
    return Passes(studied.corpus, studied.train, parameters.batch_size, parameters.corpus_seed).steps


@pytest.mark.slow
@pytest.mark.parametrize(
    "values", [{}, {"train_on": "short"}, {"batch_size": 3}, {"batch_size": 150}, {"n_names": 300}]
)
def test_a_pass_reads_no_sentence_twice(values: dict[str, Value]) -> None:
    parameters = small(**values)
    studied = studied_corpus(parameters)
    trained_on = _known(studied, studied.train)
    steps = _steps_of_pass(parameters)
    both = lanes(parameters, parameters)
    seen: set[Pair] = set()
    for turn in range(6):
        batches = [WORKLOAD.batch(both, turn * steps + step) for step in range(steps)]
        for lane in range(2):
            read = Counter(pair for batch in batches for pair in _pairs(batch, lane))
            assert read <= trained_on
            assert read.total() == sum(batch["source"].shape[1] for batch in batches)
            assert 2 * read.total() > trained_on.total()
        seen |= read.keys()
    # Sentences left over in one pass come in another.
    assert len(seen) > 0.95 * len(trained_on)


@pytest.mark.slow
@pytest.mark.parametrize("values", [{}, {"train_on": "short"}])
def test_a_training_reads_the_same_in_any_pack_and_after_any_resume(values: dict[str, Value]) -> None:
    parameters = small(**values, n_steps=150)
    others = [small(**values, n_steps=150, window=1, init_sigma=0.1), small(**values, n_steps=150, label_smoothing=0.0)]
    alone = lanes(parameters, seed=5)
    packed = lanes(*others, parameters, seed=3)
    steps = _steps_of_pass(parameters)
    expected = [WORKLOAD.batch(alone, step) for step in range(150)]
    for first in (0, 1, 7, steps - 1, steps, steps + 1, 3 * steps - 1, 140):
        for last in (first + 1, first + 5, 151):
            block = WORKLOAD.batches(packed, range(first, last))
            assert 1 <= len(block) <= last - first
            for step, batch in enumerate(block, start=first):
                if step < 150:
                    for name, value in batch.items():
                        assert torch.equal(value[2], expected[step][name][0]), (step, name)


def test_held_out_sentences_are_not_trained_on() -> None:
    studied = studied_corpus(small())
    source = studied.corpus.source.tokens
    trained_on = {tuple(tokens) for tokens in source[studied.train]}
    for part, most in ((VALID, 40), (TEST, 12)):
        pairs = studied.held_out(part, most)
        assert len(pairs) == most
        assert not trained_on & {tuple(tokens) for tokens in source[pairs]}
    eval_pairs = [pair for part in parts_of(WORKLOAD.eval_batch(lanes(small()))) for pair in _pairs(part)]
    assert Counter(eval_pairs) == _known(studied, studied.held_out(VALID, 40))


def test_short_is_no_longer_than_the_median_of_training() -> None:
    everything, short = studied_corpus(small()), studied_corpus(small(train_on="short"))
    lengths = everything.corpus.source.lengths
    median = np.median(lengths[everything.corpus.part == TRAIN])
    assert np.array_equal(short.train, everything.train[lengths[everything.train] <= median])
    assert 0.4 < len(short.train) / len(everything.train) < 0.8
    for studied in (everything, short):
        assert np.array_equal(studied.is_short, lengths <= median)
    for parameters, judges_all in ((small(), True), (small(train_on="short"), False)):
        for part in parts_of(WORKLOAD.eval_batch(lanes(parameters, parameters))):
            is_short_LB = (part["source"] != PAD).sum(-1) <= median
            assert torch.equal(part["is_short"], is_short_LB)
            assert torch.equal(part["is_judged"], is_short_LB | judges_all)
    parts = parts_of(WORKLOAD.eval_batch(lanes(small())))
    assert sum(int((~part["is_short"]).sum()) for part in parts) > 5
