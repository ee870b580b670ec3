"""The probabilistic grammar: which choices make a sentence, in which order, with what probabilities.

Every choice has a place, a name that is unique in the sentence. `derive` requests the outcome at a place; `laws` has
the probabilities of the outcomes at each place. Choices are independent, so the probability of a tree is the product
over the places that `derive` requested.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

from attnsweep.workloads.translation.grammar.common_words import Lexeme
from attnsweep.workloads.translation.grammar.lexicon import Lexicon, zipf
from attnsweep.workloads.translation.grammar.tree import CommonNoun, Name, Phrase, Pronoun, Relative, Sentence

Choose: TypeAlias = Callable[[str], int]
"""A function that returns the outcome at a place: an index into the probabilities that `laws` has for the place."""


class PhraseKind(IntEnum):
    """Kinds of noun phrase. A place with fewer probabilities than kinds does not allow the last ones."""

    COMMON = 0
    NAME = 1
    PRONOUN = 2
    POSSESSED = 3


class RelativeKind(IntEnum):
    """Kinds of relative clause: none, `that sleeps`, `that sees the cat`, `that the cat sees`."""

    NONE = 0
    INTRANSITIVE = 1
    OF_SUBJECT = 2
    OF_OBJECT = 3


SUBJECT_KINDS = (0.56, 0.14, 0.15, 0.15)
OBJECT_KINDS = (0.58, 0.14, 0.13, 0.15)
RELATIVE_SUBJECT_KINDS = (0.65, 0.35)
RELATIVE_OBJECT_KINDS = (0.55, 0.25, 0.20)
RELATIVE_KINDS = (0.60, 0.08, 0.16, 0.16)
SUBJECT_PRONOUNS = (0.45, 0.30, 0.25)
OBJECT_PRONOUNS = (0.35, 0.35, 0.30)
P_INDEFINITE = 0.35
P_PLURAL = 0.30
P_ADJECTIVE = 0.45
P_INTRANSITIVE = 0.20
P_NEGATED = 0.25
P_ADVERB = 0.30
P_PRONOUN_DROPPED = 0.5
SYNONYMS = (0.7, 0.3)


def derive(choose: Choose, lexicon: Lexicon) -> Sentence:
    """Builds a sentence's tree from the outcomes that `choose` returns at each place."""
    subject = _phrase("subject", choose, lexicon)
    negated = bool(choose("verb.negated"))
    if choose("verb.intransitive"):
        verb = lexicon.intransitive_verbs[choose("verb.word.intransitive")]
        obj = None
    else:
        verb = lexicon.transitive_verbs[choose("verb.word.transitive")]
        obj = _phrase("object", choose, lexicon)
    adverb = lexicon.adverbs[choose("adverb.word")] if choose("adverb.present") else None
    return Sentence(subject, verb, negated, obj, adverb)


def _phrase(role: str, choose: Choose, lexicon: Lexicon) -> Phrase:
    kind = choose(f"{role}.kind")
    if kind == PhraseKind.NAME:
        return Name(lexicon.names[choose(f"{role}.name")])
    if kind == PhraseKind.PRONOUN:
        return Pronoun(choose(f"{role}.pronoun"))
    noun = lexicon.nouns[choose(f"{role}.noun")]
    plural = bool(choose(f"{role}.plural"))
    adjective = _adjective(role, choose, lexicon)
    if kind == PhraseKind.POSSESSED:
        owner = lexicon.names[choose(f"{role}.name")]
        return CommonNoun(noun, plural, True, owner, adjective)
    definite = not choose(f"{role}.indefinite")
    return CommonNoun(noun, plural, definite, None, adjective, _relative(role, choose, lexicon))


def _adjective(role: str, choose: Choose, lexicon: Lexicon) -> Lexeme | None:
    return lexicon.adjectives[choose(f"{role}.adjective")] if choose(f"{role}.has_adjective") else None


def _relative(role: str, choose: Choose, lexicon: Lexicon) -> Relative | None:
    kind = choose(f"{role}.relative.kind")
    if kind == RelativeKind.NONE:
        return None
    if kind == RelativeKind.INTRANSITIVE:
        return Relative(lexicon.intransitive_verbs[choose(f"{role}.relative.verb.intransitive")])
    verb = lexicon.transitive_verbs[choose(f"{role}.relative.verb.transitive")]
    if kind == RelativeKind.OF_SUBJECT:
        return Relative(verb, obj=_bare_phrase(f"{role}.relative.object", choose, lexicon))
    return Relative(verb, subject=_bare_phrase(f"{role}.relative.subject", choose, lexicon))


def _bare_phrase(role: str, choose: Choose, lexicon: Lexicon) -> Phrase:
    """Builds a phrase inside a relative clause: without owner, adjective or own clause, so that nothing nests."""
    kind = choose(f"{role}.kind")
    if kind == PhraseKind.NAME:
        return Name(lexicon.names[choose(f"{role}.name")])
    if kind == PhraseKind.PRONOUN:
        return Pronoun(choose(f"{role}.pronoun"))
    noun = lexicon.nouns[choose(f"{role}.noun")]
    return CommonNoun(noun, bool(choose(f"{role}.plural")), not choose(f"{role}.indefinite"))


def laws(lexicon: Lexicon) -> dict[str, tuple[float, ...]]:
    """Returns the probabilities of the outcomes at each place, also of choices that show only in the target
    sentence.
    """
    intransitive, transitive = zipf(len(lexicon.intransitive_verbs)), zipf(len(lexicon.transitive_verbs))
    table = {
        "verb.negated": _yes(P_NEGATED),
        "verb.intransitive": _yes(P_INTRANSITIVE),
        "verb.word.intransitive": intransitive,
        "verb.word.transitive": transitive,
        "verb.synonym": SYNONYMS,
        "adverb.present": _yes(P_ADVERB),
        "adverb.word": zipf(len(lexicon.adverbs)),
        "adverb.synonym": SYNONYMS,
        "subject.dropped": _yes(P_PRONOUN_DROPPED),
    }
    for role, kinds, pronouns in (
        ("subject", SUBJECT_KINDS, SUBJECT_PRONOUNS),
        ("object", OBJECT_KINDS, OBJECT_PRONOUNS),
    ):
        table |= _phrase_laws(role, kinds, pronouns, lexicon) | {
            f"{role}.has_adjective": _yes(P_ADJECTIVE),
            f"{role}.adjective": zipf(len(lexicon.adjectives)),
            f"{role}.adjective.synonym": SYNONYMS,
            f"{role}.relative.kind": RELATIVE_KINDS,
            f"{role}.relative.verb.intransitive": intransitive,
            f"{role}.relative.verb.transitive": transitive,
            f"{role}.relative.verb.synonym": SYNONYMS,
        }
        table |= _phrase_laws(f"{role}.relative.subject", RELATIVE_SUBJECT_KINDS, (), lexicon)
        table |= _phrase_laws(f"{role}.relative.object", RELATIVE_OBJECT_KINDS, OBJECT_PRONOUNS, lexicon)
    return table


def _phrase_laws(
    role: str, kinds: tuple[float, ...], pronouns: tuple[float, ...], lexicon: Lexicon
) -> dict[str, tuple[float, ...]]:
    return {
        f"{role}.kind": kinds,
        f"{role}.name": zipf(len(lexicon.names)),
        **({f"{role}.pronoun": pronouns} if pronouns else {}),
        f"{role}.noun": zipf(len(lexicon.nouns)),
        f"{role}.noun.synonym": SYNONYMS,
        f"{role}.plural": _yes(P_PLURAL),
        f"{role}.indefinite": _yes(P_INDEFINITE),
    }


def _yes(p: float) -> tuple[float, float]:
    return (1.0 - p, p)
