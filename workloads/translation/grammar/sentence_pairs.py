"""Generates sentences in both languages, with the grammar's annotations, from random choices.

The choices of sentence i are a function of (seed, i): a row of outcomes, with one column per place, such as
`subject.noun`. Each place has its own column, so a choice that a sentence does not make does not shift the others, and
a longer corpus begins with the sentences of a shorter one.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.translation.grammar.lexicon import Lexicon
from attnsweep.workloads.translation.grammar.source_side import source_words
from attnsweep.workloads.translation.grammar.target_side import target_words
from attnsweep.workloads.translation.grammar.tree import RELATIONS, Sentence, dependencies, derive, laws

SENTENCES_PER_DRAW = 1024
_STREAM = "grammar"


class Laws:
    """The places at which the grammar chooses, with the probabilities of the outcomes at each.

    Args:
        probabilities: The probabilities of the outcomes, which sum to 1, by place.
    """

    def __init__(self, probabilities: Mapping[str, tuple[float, ...]]) -> None:
        self.columns = {place: i for i, place in enumerate(probabilities)}
        self.nats = [[-math.log(p) for p in law] for law in probabilities.values()]
        self._thresholds = [np.cumsum(law)[:-1] for law in probabilities.values()]

    def outcomes(self, seed: int, draw: int) -> list[list[int]]:
        """Draws the outcomes of `SENTENCES_PER_DRAW` sentences: one row per sentence, one outcome per place."""
        shape = (SENTENCES_PER_DRAW, len(self.columns))
        draws = Streams(torch.tensor([seed])).uniform(_STREAM, shape, step=draw)[0].numpy()
        outcomes = np.empty(shape, dtype=np.int64)
        for i, thresholds in enumerate(self._thresholds):
            outcomes[:, i] = np.searchsorted(thresholds, draws[:, i], side="right")
        rows: list[list[int]] = outcomes.tolist()
        return rows


class Choices:
    """The random choices of one sentence, and -log p of those that were requested.

    Args:
        laws: The places of the grammar and their probabilities.
        outcomes: One outcome for each place.
    """

    __slots__ = ("_columns", "_law_nats", "_outcomes", "nats")

    def __init__(self, laws: Laws, outcomes: list[int]) -> None:
        self._columns = laws.columns
        self._law_nats = laws.nats
        self._outcomes = outcomes
        self.nats = 0.0
        """-log p of the outcomes requested so far, in nats."""

    def __call__(self, place: str) -> int:
        """Returns the outcome at a place and adds its -log p to `nats`. A place may be requested only once."""
        column = self._columns[place]
        outcome = self._outcomes[column]
        self.nats += self._law_nats[column][outcome]
        return outcome


def choices_from(laws: Laws, seed: int, first: int = 0) -> Iterator[Choices]:
    """Yields the choices of the sentences with numbers `first`, `first` + 1, ... without end."""
    draw, skipped = divmod(first, SENTENCES_PER_DRAW)
    while True:
        for outcomes in laws.outcomes(seed, draw)[skipped:]:
            yield Choices(laws, outcomes)
        draw, skipped = draw + 1, 0


Arc = tuple[int, int, int]
"""A dependency: (index of the relation in `RELATIONS`, position of the dependent, position of the governor)."""


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A sentence in both languages, with S source and T target words, EOS not included. Positions count words from 0.

    Attributes:
        tree: The derivation that both languages express.
        source, target: The words.
        source_arcs, target_arcs: The dependencies; a dropped pronoun has none.
        alignment: (T,) the source position that each target word translates.
        token_nats: (T,) -log p(target word | source, target words before), in nats.
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
    """Yields the seed's sentence pairs with numbers `first`, `first` + 1, ... without end."""
    for choices in choices_from(Laws(laws(lexicon)), seed, first):
        yield _realized(derive(choices, lexicon), choices)


def sentence_pair(lexicon: Lexicon, seed: int, number: int) -> SentencePair:
    """Returns the seed's sentence pair `number`. The training part of a corpus is pairs 0, 1, 2, ..."""
    return next(sentence_pairs(lexicon, seed, number))


def _realized(tree: Sentence, choices: Choices) -> SentencePair:
    source = source_words(tree)
    target = target_words(tree, choices)
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
    """Returns the place of the source word that the target word at `place` translates: the same place, except that
    `'s` is translated by both `il` and `di`."""
    return place.removesuffix("of") + "determiner" if place.endswith(".of") else place


def _positioned(arcs: list[tuple[int, str, str]], positions: dict[str, int]) -> list[Arc]:
    return [
        (relation, positions[dependent], positions[governor])
        for relation, dependent, governor in arcs
        if dependent in positions
    ]


def pair_as_text(pair: SentencePair) -> str:
    """Formats a pair as one line, such as `the dog sleeps -> il cane dorme`."""
    return f"{' '.join(pair.source)} -> {' '.join(pair.target)}"


def arcs_as_text(words: tuple[str, ...], arcs: list[Arc]) -> str:
    """Formats one line per dependency arc, from dependent to governor, such as `subject: dog (1) -> sleeps (2)`."""
    return "\n".join(
        f"{RELATIONS[relation]}: {words[dependent]} ({dependent}) -> {words[governor]} ({governor})"
        for relation, dependent, governor in arcs
    )
