"""The corpus: its arrays, parts and vocabularies; it is a function of its arguments."""

from collections import Counter

import numpy as np
import pytest

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.translation import grammar
from attnsweep.workloads.translation.corpus import EOS, PAD, SPECIALS, TEST, TRAIN, UNK, VALID, Corpus, Side
from attnsweep.workloads.translation.grammar import Lexicon, LexiconSizes, grammar_corpus, sentence_pair
from tests.refusals import refused

SIZES = LexiconSizes()


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return grammar_corpus(SIZES, n_train=2_000, n_valid=150, n_test=250, seed=3)


def text(side: Side, i: int) -> tuple[str, ...]:
    return tuple(side.words[token] for token in side.tokens[i, : side.lengths[i] - 1])


@pytest.mark.slow
def test_tokens_are_words_then_eos_then_padding(corpus: Corpus) -> None:
    for side in (corpus.source, corpus.target):
        assert side.tokens.shape == (2_400, side.lengths.max())
        after = np.arange(side.tokens.shape[1]) - side.lengths[:, None]
        assert (side.tokens[after == -1] == EOS).all()
        assert (side.tokens[after >= 0] == PAD).all()
        assert (side.tokens[after < -1] > UNK).all()


def test_a_source_is_in_one_part_and_held_out_sources_differ(corpus: Corpus) -> None:
    assert np.bincount(corpus.part).tolist() == [2_000, 150, 250]
    assert (np.diff(corpus.part) >= 0).all()
    by_part = {
        part: [text(corpus.source, int(i)) for i in np.flatnonzero(corpus.part == part)]
        for part in (TRAIN, VALID, TEST)
    }
    assert not set(by_part[TRAIN]) & set(by_part[VALID] + by_part[TEST])
    assert len(set(by_part[VALID] + by_part[TEST])) == 400
    assert len(set(by_part[TRAIN])) < 2_000


def test_vocabularies_hold_every_word_by_falling_frequency_in_training(corpus: Corpus) -> None:
    for side in (corpus.source, corpus.target):
        counts = Counter(word for i in range(2_000) for word in text(side, i))
        assert side.words[: len(SPECIALS)] == SPECIALS
        words = side.words[len(SPECIALS) :]
        assert list(words) == sorted(words, key=lambda word: (-counts[word], word))
        assert set(counts) <= set(words)
    assert {"girls", *Lexicon(SIZES).names} <= set(corpus.source.words)
    assert {"assistiamo", "vecchie", *Lexicon(SIZES).names} <= set(corpus.target.words)


def test_arcs_are_rows_of_sentence_relation_dependent_governor(corpus: Corpus) -> None:
    gold = corpus.gold
    assert gold is not None
    pair = sentence_pair(Lexicon(SIZES), 3, 17)
    for arcs, lengths, of_pair in (
        (gold.source_arcs, corpus.source.lengths, pair.source_arcs),
        (gold.target_arcs, corpus.target.lengths, pair.target_arcs),
    ):
        assert (np.diff(arcs[:, 0]) >= 0).all()
        assert (arcs[:, 2:] < lengths[arcs[:, 0], None] - 1).all()
        assert [tuple(arc) for arc in arcs[arcs[:, 0] == 17, 1:]] == of_pair
    assert set(gold.source_arcs[:, 1]) == set(range(len(gold.relations)))


def test_the_same_arguments_give_the_same_corpus_and_others_another() -> None:
    def digest(n_train: int, seed: int) -> str:
        return grammar_corpus(SIZES, n_train, 10, 10, seed).digest

    assert digest(50, 0) == digest(50, 0)
    assert len({digest(50, 0), digest(50, 1), digest(51, 0)}) == 3


def test_a_grammar_without_new_sentences_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar.sentence_pairs, "DRAWS_PER_HELD_OUT", 1)
    tiny = LexiconSizes(n_nouns=1, n_transitive_verbs=1, n_intransitive_verbs=1, n_adjectives=1, n_names=1)
    with refused("n_valid + n_test", SpecError):
        grammar_corpus(tiny, n_train=500, n_valid=40, n_test=40, seed=0)
