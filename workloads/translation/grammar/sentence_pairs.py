"""Generates sentences in both languages, with the grammar's annotations, and a corpus of them in padded arrays.

The choices of sentence i are a function of (seed, i): a row with a column for each place, such as `subject.noun`. So
whether a sentence asks for a choice changes no other, and a longer training part begins with the sentences of a shorter
one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.translation import corpus
from attnsweep.workloads.translation.corpus import Corpus, Gold, Side, make_corpus
from attnsweep.workloads.translation.grammar import source_side, target_side
from attnsweep.workloads.translation.grammar.lexicon import Lexicon, LexiconSizes
from attnsweep.workloads.translation.grammar.tree import RELATIONS, Sentence, dependencies, derive, probabilities_of

SENTENCES_PER_DRAW = 1024
_STREAM = "grammar"


class ChoiceTable:
    """Draws the choices of many sentences at once, by the `probabilities` at each place."""

    def __init__(self, probabilities: Mapping[str, tuple[float, ...]]) -> None:
        self.columns = {place: i for i, place in enumerate(probabilities)}
        self.nats = [[-math.log(p) for p in own] for own in probabilities.values()]
        self._thresholds = [np.cumsum(own)[:-1] for own in probabilities.values()]

    def drawn(self, seed: int, block: int) -> list[list[int]]:
        """Indices into the probabilities: a row for each sentence from `block * SENTENCES_PER_DRAW` on, a column for
        each place."""
        shape = (SENTENCES_PER_DRAW, len(self.columns))
        uniform = Streams(torch.tensor([seed])).uniform(_STREAM, shape, step=block)[0].numpy()
        indices = np.empty(shape, dtype=np.int64)
        for i, thresholds in enumerate(self._thresholds):
            indices[:, i] = np.searchsorted(thresholds, uniform[:, i], side="right")
        rows: list[list[int]] = indices.tolist()
        return rows


class Choices:
    """One sentence's random choices; `nats` sums up -log p of those that the grammar has asked for."""

    __slots__ = ("_row", "_table", "nats")

    def __init__(self, table: ChoiceTable, row: list[int]) -> None:
        self._table, self._row, self.nats = table, row, 0.0

    def __call__(self, place: str) -> int:
        column = self._table.columns[place]
        index = self._row[column]
        self.nats += self._table.nats[column][index]
        return index


Arc = tuple[int, int, int]
"""The relation's index in `RELATIONS`, and the positions of dependent and governor."""


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A sentence in both languages, EOS not included. Positions count words from 0.

    Attributes:
        source_arcs, target_arcs: The dependencies; a dropped pronoun has none.
        alignment: (n_target_words,) the source position that each target word translates.
        token_nats: (n_target_words,) -log p(target word | source, target words before), in nats.
        target_nats: -log p(target), in nats.
    """

    tree: Sentence
    source: tuple[str, ...]
    target: tuple[str, ...]
    source_arcs: list[Arc]
    target_arcs: list[Arc]
    alignment: list[int]
    token_nats: list[float]
    target_nats: float


def sentence_pairs(lexicon: Lexicon, seed: int, first: int = 0) -> Iterator[SentencePair]:
    """Without end, from pair number `first` on."""
    table, (block, skipped) = ChoiceTable(probabilities_of(lexicon)), divmod(first, SENTENCES_PER_DRAW)
    while True:
        for row in table.drawn(seed, block)[skipped:]:
            choices = Choices(table, row)
            yield _realized(derive(choices, lexicon), choices)
        block, skipped = block + 1, 0


def sentence_pair(lexicon: Lexicon, seed: int, number: int) -> SentencePair:
    """The pair of this number; a corpus trains on the pairs 0, 1, 2, ..."""
    return next(sentence_pairs(lexicon, seed, number))


def _realized(tree: Sentence, choices: Choices) -> SentencePair:
    source = source_side.source_words(tree)
    target = target_side.target_words(tree, choices)
    source_positions = {place: i for i, place in enumerate(source)}
    target_positions = {word.place: i for i, word in enumerate(target)}
    arcs = dependencies(tree)
    return SentencePair(
        tree=tree,
        source=tuple(source.values()),
        target=tuple(word.text for word in target),
        source_arcs=_positioned(arcs, source_positions),
        target_arcs=_positioned(arcs, target_positions),
        alignment=[source_positions[_translated(word.place)] for word in target],
        token_nats=[word.nats for word in target],
        target_nats=choices.nats,
    )


def _translated(place: str) -> str:
    """The target word `di` at `<noun>.of` translates the `'s` at `<noun>.determiner`."""
    return place.removesuffix("of") + "determiner" if place.endswith(".of") else place


def _positioned(arcs: list[tuple[int, str, str]], positions: dict[str, int]) -> list[Arc]:
    return [
        (relation, positions[dependent], positions[governor])
        for relation, dependent, governor in arcs
        if dependent in positions
    ]


_NO_COUNTERPART = -1
_Number = TypeVar("_Number", np.int64, np.float64)


def grammar_corpus(sizes: LexiconSizes, n_train: int, n_valid: int, n_test: int, seed: int) -> Corpus:
    """Training pairs, which may repeat, then validation and test pairs, all different, with no source in two parts. All
    words of the lexicon are in the vocabularies, whether or not a sentence has them."""
    lexicon = Lexicon(sizes)
    train, held_out = split_sentences(lexicon, n_train, n_valid, n_test, seed)
    pairs = train + held_out
    source_forms = chain.from_iterable(lexeme.source for lexeme in lexicon.lexemes)
    target_forms = chain.from_iterable(chain.from_iterable(lexeme.target) for lexeme in lexicon.lexemes)
    source_words = {*source_side.FUNCTION_WORDS, *lexicon.names, *source_forms}
    target_words = {*target_side.FUNCTION_WORDS, *lexicon.names, *target_forms}
    source = _side(source_words, [pair.source for pair in pairs], n_train)
    target = _side(target_words, [pair.target for pair in pairs], n_train)
    part = np.repeat(np.array((corpus.TRAIN, corpus.VALID, corpus.TEST), dtype=np.int64), (n_train, n_valid, n_test))
    return make_corpus(source, target, part, _gold(pairs, target))


def _side(vocabulary: set[str], sentences: list[tuple[str, ...]], n_train: int) -> Side:
    counts = Counter(chain.from_iterable(sentences[:n_train]))
    words = (*corpus.SPECIALS, *sorted(vocabulary, key=lambda word: (-counts[word], word)))
    numbers = {word: i for i, word in enumerate(words)}
    lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
    coded = ([*(numbers[word] for word in sentence), corpus.EOS] for sentence in sentences)
    return Side(words=words, tokens=_padded(coded, lengths, np.int64(corpus.PAD)), lengths=lengths)


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
    rows = [(sentence, *arc) for sentence, arcs in enumerate(by_sentence) for arc in arcs]
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _padded(
    by_sentence: Iterable[list[int]] | Iterable[list[float]], lengths: NDArray[np.int64], filler: _Number
) -> NDArray[_Number]:
    """(n_sentences, longest), padded with `filler`."""
    padded = np.full((len(lengths), lengths.max()), filler, dtype=type(filler))
    is_value = np.arange(lengths.max()) < lengths[:, None]
    padded[is_value] = np.fromiter(chain.from_iterable(by_sentence), dtype=type(filler), count=int(lengths.sum()))
    return padded


DRAWS_PER_HELD_OUT = 50
"""The grammar is too small if so many draws per held-out sentence do not give enough new ones."""


def split_sentences(
    lexicon: Lexicon, n_train: int, n_valid: int, n_test: int, seed: int
) -> tuple[list[SentencePair], list[SentencePair]]:
    """The beginning of the seed's stream, repetitions included; and, for validation and test, the following sentences
    whose source has not been drawn before."""
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
        n_drawn = DRAWS_PER_HELD_OUT * n_held_out
        expected = f"at most {len(held_out)} sentences: {n_drawn} draws gave no more whose source is new"
        raise SpecError("n_valid + n_test", given=n_held_out, expected=expected, fix="enlarge the lexicon")
    return train, held_out
