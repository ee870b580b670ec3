"""The words of both languages by class, in lexicons of any size, with the probabilities of the words."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.translation.grammar import common_words
from attnsweep.workloads.translation.grammar.common_words import Lexeme

MOST_LEXEMES = 100_000
SYNONYM_PERIOD = 3
"""The second of every three lexemes has two translations (synonyms), the others have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LexiconSizes:
    """The number of lexemes of each class, 1 to `MOST_LEXEMES`. A larger lexicon begins with the words of a smaller
    one.

    Attributes:
        n_nouns: Nouns, of both genders.
        n_transitive_verbs: Verbs with an object.
        n_intransitive_verbs: Verbs without an object.
        n_adjectives: Adjectives.
        n_names: Proper names; most are rare.

    Raises:
        SpecError: If a class is empty or too large.
    """

    n_nouns: int = 24
    n_transitive_verbs: int = 12
    n_intransitive_verbs: int = 6
    n_adjectives: int = 8
    n_names: int = 40

    def __post_init__(self) -> None:
        for field in fields(self):
            size = getattr(self, field.name)
            if not 1 <= size <= MOST_LEXEMES:
                raise SpecError(
                    field.name,
                    given=size,
                    expected=f"a number of lexemes from 1 to {MOST_LEXEMES}",
                    fix=f"raise {field.name}"
                    if size < 1
                    else f"lower {field.name}, because further words are hardly ever drawn",
                )


class Lexicon:
    """All words of both languages except function words, by class, most frequent first.

    Args:
        sizes: The number of lexemes of each class. The adverbs are always the six of `common_words`.
    """

    def __init__(self, sizes: LexiconSizes) -> None:
        self.nouns = _class(sizes.n_nouns, common_words.NOUNS, _Endings(("t", "ts"), ("to", "ti"), ("ta", "te")))
        self.transitive_verbs = _class(
            sizes.n_transitive_verbs, common_words.TRANSITIVE_VERBS, _Endings(("k", "ks"), _conjugated("r"))
        )
        self.intransitive_verbs = _class(
            sizes.n_intransitive_verbs, common_words.INTRANSITIVE_VERBS, _Endings(("p", "ps"), _conjugated("v"))
        )
        self.adjectives = _class(
            sizes.n_adjectives, common_words.ADJECTIVES, _Endings(("l",), ("so", "si", "sa", "se"))
        )
        n_generated_names = max(0, sizes.n_names - len(common_words.NAMES))
        generated_names = (stem + "n" for stem in islice(stems("name"), n_generated_names))
        self.names = (*common_words.NAMES[: sizes.n_names], *generated_names)
        self.adverbs = common_words.ADVERBS

    @property
    def lexemes(self) -> tuple[Lexeme, ...]:
        """All lexemes except names, which both languages share."""
        return (*self.nouns, *self.transitive_verbs, *self.intransitive_verbs, *self.adjectives, *self.adverbs)


@functools.lru_cache(maxsize=16)
def zipf(n_words: int) -> tuple[float, ...]:
    """Returns the probabilities of a class's words, proportional to 1/rank (Zipf's law)."""
    total = sum(1.0 / rank for rank in range(1, n_words + 1))
    return tuple(1.0 / (rank * total) for rank in range(1, n_words + 1))


class _Endings:
    """The endings of the generated words of one class: a consonant that no other class has, then the inflection.

    Args:
        source: The ending of each source form.
        target: The ending of each target form, for each gender that the class has.
    """

    def __init__(self, source: tuple[str, ...], *target: tuple[str, ...]) -> None:
        self.source = source
        self.target = target


def _conjugated(consonant: str) -> tuple[str, ...]:
    return tuple(consonant + ending for ending in ("o", "i", "iamo", "e", "ono"))


def _class(n_lexemes: int, common: tuple[Lexeme, ...], endings: _Endings) -> tuple[Lexeme, ...]:
    """Returns the first lexemes of a class: hand-written ones, then generated ones. Generated lexemes have alternating
    genders, and every third has a synonym.
    """
    source_stems = stems("".join(endings.source))
    target_stems = stems("".join(endings.target[0]))
    generated = []
    for i in range(len(common), n_lexemes):
        source_stem = next(source_stems)
        gender = i % len(endings.target)
        translations = islice(target_stems, 2 if i % SYNONYM_PERIOD == 1 else 1)
        generated.append(
            Lexeme(
                source=tuple(source_stem + ending for ending in endings.source),
                target=tuple(tuple(stem + ending for ending in endings.target[gender]) for stem in translations),
                feminine=gender == 1,
            )
        )
    return (*common[:n_lexemes], *generated)


_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
_SCATTER = 1213
"""A number coprime to the number of syllables: multiplying by it permutes the stems, so that neighbours look
different."""


def stems(word_class: str) -> Iterator[str]:
    """Yields stems of two syllables, then of three and so on, without end, in an order that is fixed for each class.
    Stems are unique within a class, but two classes may share stems.
    """
    n_syllables = 2
    start = sum(map(ord, word_class)) * _SCATTER // 2
    while True:
        n_stems = len(_SYLLABLES) ** n_syllables
        for i in range(n_stems):
            yield _spelled((start + i * _SCATTER) % n_stems, n_syllables)
        n_syllables += 1


def _spelled(number: int, n_syllables: int) -> str:
    syllables = []
    for _ in range(n_syllables):
        number, i = divmod(number, len(_SYLLABLES))
        syllables.append(_SYLLABLES[i])
    return "".join(syllables)
