"""Generates a corpus from the grammar: numbered words, in padded arrays.

Axes: N sentence pair, T token, A arc.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.translation.corpus import (
    EOS,
    PAD,
    SPECIALS,
    TEST,
    TRAIN,
    VALID,
    Corpus,
    Gold,
    Side,
    make_corpus,
)
from attnsweep.workloads.translation.grammar import source_side, target_side
from attnsweep.workloads.translation.grammar.lexicon import Lexicon, LexiconSizes
from attnsweep.workloads.translation.grammar.sentence_pairs import Arc, SentencePair, sentence_pairs
from attnsweep.workloads.translation.grammar.tree import RELATIONS

_NO_COUNTERPART = -1
_Number = TypeVar("_Number", np.int64, np.float64)


def grammar_corpus(lexicon: LexiconSizes, n_train: int, n_valid: int, n_test: int, seed: int) -> Corpus:
    """Generates training, validation and test pairs, in this order, as a function of the arguments alone.

    Args:
        lexicon: The sizes of the lexicon. All its words are in the vocabularies, whether or not a sentence has them.
        n_train: The number of training pairs, which may repeat.
        n_valid, n_test: The numbers of validation and test pairs. All are different, and no source is in two parts.
        seed: The seed of the stream of sentences.

    Raises:
        SpecError: If a number of pairs is too small, or the grammar has too few sentences.
    """
    words = Lexicon(lexicon)
    train, held_out = split_sentences(words, n_train, n_valid, n_test, seed)
    pairs = train + held_out
    source_forms = chain.from_iterable(lexeme.source for lexeme in words.lexemes)
    target_forms = chain.from_iterable(chain.from_iterable(lexeme.target) for lexeme in words.lexemes)
    source_words = {*source_side.FUNCTION_WORDS, *words.names, *source_forms}
    target_words = {*target_side.FUNCTION_WORDS, *words.names, *target_forms}
    source = _side(source_words, [pair.source for pair in pairs], n_train)
    target = _side(target_words, [pair.target for pair in pairs], n_train)
    part = np.repeat(np.array((TRAIN, VALID, TEST), dtype=np.int64), (n_train, n_valid, n_test))
    return make_corpus(source, target, part, _gold(pairs, target))


def _side(vocabulary: set[str], sentences: list[tuple[str, ...]], n_train: int) -> Side:
    counts = Counter(chain.from_iterable(sentences[:n_train]))
    words = (*SPECIALS, *sorted(vocabulary, key=lambda word: (-counts[word], word)))
    numbers = {word: i for i, word in enumerate(words)}
    lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
    coded = ([*(numbers[word] for word in sentence), EOS] for sentence in sentences)
    return Side(words=words, tokens=_padded(coded, lengths, np.int64(PAD)), lengths=lengths)


def _gold(pairs: list[SentencePair], target: Side) -> Gold:
    alignment = ([*pair.alignment, len(pair.source)] for pair in pairs)
    token_nats = ([*pair.token_nats, 0.0] for pair in pairs)
    return Gold(
        relations=RELATIONS,
        source_arcs=_arc_rows(pair.source_arcs for pair in pairs),
        target_arcs=_arc_rows(pair.target_arcs for pair in pairs),
        alignment=_padded(alignment, target.lengths, np.int64(_NO_COUNTERPART)),
        token_nats=_padded(token_nats, target.lengths, np.float64(0.0)),
        target_nats=np.array([pair.target_nats for pair in pairs]),
    )


def _arc_rows(by_sentence: Iterable[list[Arc]]) -> NDArray[np.int64]:
    """Returns all dependency arcs as rows (sentence, relation, dependent, governor), (A, 4)."""
    rows = [(sentence, *arc) for sentence, arcs in enumerate(by_sentence) for arc in arcs]
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _padded(
    by_sentence: Iterable[list[int]] | Iterable[list[float]], lengths: NDArray[np.int64], filler: _Number
) -> NDArray[_Number]:
    """Returns the values of each sentence, padded with `filler` to the longest, (N, longest)."""
    padded = np.full((len(lengths), lengths.max()), filler, dtype=type(filler))
    is_value = np.arange(lengths.max()) < lengths[:, None]
    padded[is_value] = np.fromiter(chain.from_iterable(by_sentence), dtype=type(filler), count=int(lengths.sum()))
    return padded


DRAWS_PER_HELD_OUT = 50
"""The grammar is too small if this number of draws per held-out sentence does not give enough new sentences."""


def split_sentences(
    lexicon: Lexicon, n_train: int, n_valid: int, n_test: int, seed: int
) -> tuple[list[SentencePair], list[SentencePair]]:
    """Returns the training sentences, and separately the validation sentences followed by the test sentences.

    The training part is the beginning of the stream, repetitions included. The other parts are the following sentences
    whose source has not been drawn before.

    Raises:
        SpecError: If a number of sentences is too small, or the grammar has too few sentences.
    """
    for name, size, least in (("n_train", n_train, 1), ("n_valid", n_valid, 0), ("n_test", n_test, 0)):
        if size < least:
            raise SpecError(name, given=size, expected=f"at least {least} sentences", fix=f"raise {name}")
    n_held_out = n_valid + n_test
    stream = sentence_pairs(lexicon, seed)
    train = list(islice(stream, n_train))
    seen = {pair.source for pair in train}
    held_out: list[SentencePair] = []
    for pair in islice(stream, DRAWS_PER_HELD_OUT * n_held_out):
        if len(held_out) == n_held_out:
            break
        if pair.source not in seen:
            seen.add(pair.source)
            held_out.append(pair)
    if len(held_out) < n_held_out:
        raise SpecError(
            "n_valid + n_test",
            given=n_held_out,
            expected="no more sentences than the grammar has besides those of the training part: "
            f"{DRAWS_PER_HELD_OUT * n_held_out} draws gave only {len(held_out)} sentences",
            fix="enlarge the lexicon (n_nouns, n_names, ...), or lower n_train, n_valid or n_test",
        )
    return train, held_out
