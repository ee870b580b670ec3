"""The hand-written words: the most frequent ones of each class are real words, so that people can read most sentences.

A target entry lists the synonyms of a lexeme, each with all forms. The second, fifth, eighth, ... entry of a class has
two synonyms, the others one (`lexicon.SYNONYM_PERIOD`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Lexeme:
    """A word of the source language with all its forms and its translations.

    Attributes:
        source: The forms. Nouns: singular, plural. Verbs: base, third person singular. Adjectives, adverbs: one form.
        target: The translations, one or two synonyms, each with all forms. Nouns: singular, plural. Adjectives:
            masculine singular, masculine plural, feminine singular, feminine plural. Verbs: one for each `tree.Person`,
            in order. Adverbs: one form.
        feminine: Whether a noun's translations are feminine.
    """

    source: tuple[str, ...]
    target: tuple[tuple[str, ...], ...]
    feminine: bool = False


def _noun(singular: str, plural: str, *target: str, feminine: bool = False) -> Lexeme:
    return Lexeme(source=(singular, plural), target=tuple(tuple(forms.split()) for forms in target), feminine=feminine)


def _verb(base: str, third_singular: str, *infinitives: str) -> Lexeme:
    return Lexeme(source=(base, third_singular), target=tuple(map(_conjugated, infinitives)))


def _conjugated(infinitive: str) -> tuple[str, ...]:
    stem = infinitive[:-3]
    third_singular, third_plural = ("a", "ano") if infinitive.endswith("are") else ("e", "ono")
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
