"""Generates sentences in both languages, with the grammar's annotations."""

from collections.abc import Iterator
from dataclasses import dataclass

from attnsweep.workloads.translation.grammar.choices import Choices, Laws, choices_from
from attnsweep.workloads.translation.grammar.derivation import derive, laws
from attnsweep.workloads.translation.grammar.lexicon import Lexicon
from attnsweep.workloads.translation.grammar.source_side import source_words
from attnsweep.workloads.translation.grammar.target_side import target_words
from attnsweep.workloads.translation.grammar.tree import RELATIONS, Sentence, dependencies

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
    """Returns the place of the source word of which the target word at `place` is the translation. It is the same
    place, except that `'s` is translated by both `il` and `di`.
    """
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
