"""One dictionary entry with its forms in both languages."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Lexeme:
    """A word and its translations.

    Attributes:
        source: Its forms. Nouns: singular, plural. Verbs: base, third person singular. Adjectives, adverbs: one.
        target: Its translations, one or two synonyms, each with all forms. Nouns: singular, plural. Adjectives:
            masculine singular, masculine plural, feminine singular, feminine plural. Verbs: `tree.Person` in order.
            Adverbs: one.
        feminine: Gender of a noun's translations.
    """

    source: tuple[str, ...]
    target: tuple[tuple[str, ...], ...]
    feminine: bool = False
