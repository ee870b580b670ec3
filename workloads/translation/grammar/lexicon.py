"""The words of the grammar's two languages by class (nouns, verbs, ...), with their probabilities.

The most frequent words of each class are real ones, so that people can read most sentences.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, kw_only=True, slots=True)
class Lexeme:
    """A word of the source language and its translations.

    Attributes:
        source: The forms. Nouns: singular, plural. Verbs: base, third person singular. Adjectives, adverbs: one form.
        target: One or two synonyms, each with its forms. Nouns: singular, plural. Adjectives: masculine singular and
            plural, feminine singular and plural. Verbs: one for each `tree.Person`. Adverbs: one form.
    """

    source: tuple[str, ...]
    target: tuple[tuple[str, ...], ...]
    feminine: bool = False


def _noun(singular: str, plural: str, *target: str, feminine: bool = False) -> Lexeme:
    return Lexeme(source=(singular, plural), target=tuple(tuple(forms.split()) for forms in target), feminine=feminine)


def _verb(base: str, third_singular: str, *infinitives: str) -> Lexeme:
    third = {"are": ("a", "ano"), "ere": ("e", "ono"), "ire": ("e", "ono")}
    forms = (_conjugated(infinitive[:-3], *third[infinitive[-3:]]) for infinitive in infinitives)
    return Lexeme(source=(base, third_singular), target=tuple(forms))


def _conjugated(stem: str, third_singular: str = "e", third_plural: str = "ono") -> tuple[str, ...]:
    return tuple(stem + ending for ending in ("o", "i", "iamo", third_singular, third_plural))


def _adjective(source: str, *stems: str) -> Lexeme:
    return Lexeme(source=(source,), target=tuple(tuple(stem + ending for ending in "oiae") for stem in stems))


def _adverb(source: str, *target: str) -> Lexeme:
    return Lexeme(source=(source,), target=tuple((word,) for word in target))


NOUNS = (
    _noun("dog", "dogs", "cane cani"),
    _noun("cat", "cats", "gatto gatti", "micio mici"),
    _noun("girl", "girls", "ragazza ragazze", feminine=True),
    _noun("boy", "boys", "ragazzo ragazzi"),
    _noun("teacher", "teachers", "maestra maestre", "professoressa professoresse", feminine=True),
    _noun("house", "houses", "casa case", feminine=True),
    _noun("horse", "horses", "cavallo cavalli"),
    _noun("road", "roads", "strada strade", "via vie", feminine=True),
    _noun("book", "books", "libro libri"),
    _noun("woman", "women", "donna donne", feminine=True),
    _noun("friend", "friends", "amico amici", "compagno compagni"),
    _noun("bird", "birds", "uccello uccelli"),
)
TRANSITIVE_VERBS = (
    _verb("see", "sees", "vedere"),
    _verb("love", "loves", "amare", "adorare"),
    _verb("find", "finds", "trovare"),
    _verb("follow", "follows", "seguire"),
    _verb("hear", "hears", "sentire", "ascoltare"),
    _verb("watch", "watches", "guardare"),
    _verb("know", "knows", "conoscere"),
    _verb("help", "helps", "aiutare", "assistere"),
)
INTRANSITIVE_VERBS = (
    _verb("sleep", "sleeps", "dormire"),
    _verb("run", "runs", "correre", "galoppare"),
    _verb("sing", "sings", "cantare"),
    _verb("smile", "smiles", "sorridere"),
    _verb("arrive", "arrives", "arrivare", "approdare"),
)
ADJECTIVES = (
    Lexeme(source=("old",), target=(("vecchio", "vecchi", "vecchia", "vecchie"),)),
    _adjective("small", "piccol", "piccin"),
    _adjective("red", "ross"),
    _adjective("happy", "allegr"),
    _adjective("pretty", "bell", "carin"),
    _adjective("new", "nuov"),
)
NAMES = ("tom", "anna", "paul", "mary", "john", "luke", "sara", "peter", "emma", "david")
ADVERBS = (
    _adverb("often", "spesso"),
    _adverb("slowly", "lentamente", "piano"),
    _adverb("here", "qui"),
    _adverb("today", "oggi"),
    _adverb("again", "ancora", "nuovamente"),
    _adverb("together", "insieme"),
)


SYNONYM_PERIOD = 3
"""The second of every three lexemes has two translations, the others have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LexiconSizes:
    """At least 1 each. A larger lexicon begins with the words of a smaller one."""

    n_nouns: int = 24
    n_transitive_verbs: int = 12
    n_intransitive_verbs: int = 6
    n_adjectives: int = 8
    n_names: int = 40


class Lexicon:
    """All words of both languages except function words, by class, most frequent first."""

    def __init__(self, sizes: LexiconSizes) -> None:
        self.nouns = _class(sizes.n_nouns, NOUNS, ("t", "ts"), ("to", "ti"), ("ta", "te"))
        self.transitive_verbs = _class(sizes.n_transitive_verbs, TRANSITIVE_VERBS, ("k", "ks"), _conjugated("r"))
        self.intransitive_verbs = _class(sizes.n_intransitive_verbs, INTRANSITIVE_VERBS, ("p", "ps"), _conjugated("v"))
        self.adjectives = _class(sizes.n_adjectives, ADJECTIVES, ("l",), ("so", "si", "sa", "se"))
        n_generated_names = max(0, sizes.n_names - len(NAMES))
        generated_names = (stem + "n" for stem in islice(stems("name"), n_generated_names))
        self.names = (*NAMES[: sizes.n_names], *generated_names)
        self.adverbs = ADVERBS

    @property
    def lexemes(self) -> tuple[Lexeme, ...]:
        """All but the names, which are the same in both languages."""
        return (*self.nouns, *self.transitive_verbs, *self.intransitive_verbs, *self.adjectives, *self.adverbs)


@functools.lru_cache(maxsize=16)
def zipf(n_words: int) -> tuple[float, ...]:
    """The probabilities of a class's words: proportional to 1/rank, the first the most frequent."""
    total = sum(1.0 / rank for rank in range(1, n_words + 1))
    return tuple(1.0 / (rank * total) for rank in range(1, n_words + 1))


def _class(
    n_lexemes: int, common: tuple[Lexeme, ...], source_endings: tuple[str, ...], *target_endings: tuple[str, ...]
) -> tuple[Lexeme, ...]:
    # `source_endings` are of a source word's forms, `target_endings` of a target word's, a tuple for each gender. Each
    # begins with a consonant that no other class has.
    source_stems, target_stems = stems("".join(source_endings)), stems("".join(target_endings[0]))
    generated = []
    for i in range(len(common), n_lexemes):
        source_stem = next(source_stems)
        gender = i % len(target_endings)
        translations = islice(target_stems, 2 if i % SYNONYM_PERIOD == 1 else 1)
        generated.append(
            Lexeme(
                source=tuple(source_stem + ending for ending in source_endings),
                target=tuple(tuple(stem + ending for ending in target_endings[gender]) for stem in translations),
                feminine=gender == 1,
            )
        )
    return (*common[:n_lexemes], *generated)


_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
_SCATTER = 1213
"""Coprime to the number of syllables: multiplication by it permutes stems, so that neighbours look different."""


def stems(word_class: str) -> Iterator[str]:
    """Stems of two syllables, then of three and so on, in a fixed order; unique within a class."""
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
