"""The probabilistic grammar: the tree of a sentence, the random choices that make it, and their probabilities.

Both languages express the tree: the words and their relations, without order or agreement. Every choice has a place, a
name that is unique in the sentence. Choices are independent, so a tree's probability is the product over the places
that `derive` requested of their `probabilities_of`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from attnsweep.workloads.translation.grammar.lexicon import Lexeme, Lexicon, zipf


class Person(IntEnum):
    """In the order of a verb's forms in the target language."""

    I = 0  # noqa: E741 (the pronoun's own name)
    YOU = 1
    WE = 2
    SINGULAR = 3
    PLURAL = 4


@dataclass(frozen=True, slots=True)
class Pronoun:
    """i, you, we as a subject (the first three of `Person`); him, her, them as an object."""

    number: int


@dataclass(frozen=True, slots=True)
class Name:
    word: str


@dataclass(frozen=True, slots=True)
class CommonNoun:
    """With an owner (`tom 's dog`) definite and without relative clause."""

    noun: Lexeme
    plural: bool
    definite: bool
    owner: str | None = None
    adjective: Lexeme | None = None
    relative: "Relative | None" = None


Phrase: TypeAlias = Pronoun | Name | CommonNoun


@dataclass(frozen=True, slots=True)
class Relative:
    """The noun that it modifies is its object if it has a `subject`, as in `that the cat sees`, else its subject, as in
    `that sees the cat`; with neither `subject` nor `obj` the verb is intransitive."""

    verb: Lexeme
    subject: Phrase | None = None
    obj: Phrase | None = None


@dataclass(frozen=True, slots=True)
class Sentence:
    """`obj` is `None` where the verb is intransitive."""

    subject: Phrase
    verb: Lexeme
    negated: bool
    obj: Phrase | None
    adverb: Lexeme | None


def person(subject: Phrase) -> Person:
    if isinstance(subject, Pronoun):
        return Person(subject.number)
    if isinstance(subject, CommonNoun) and subject.plural:
        return Person.PLURAL
    return Person.SINGULAR


RELATIONS = ("subject", "object", "adjective", "determiner", "possessor", "relative")
_SUBJECT, _OBJECT, _ADJECTIVE, _DETERMINER, _POSSESSOR, _RELATIVE = range(len(RELATIONS))


def dependencies(sentence: Sentence) -> list[tuple[int, str, str]]:
    """All arcs: relation, place of the dependent, place of its governor.

    The noun that a relative clause modifies is the subject or object of the clause's verb, which depends on it by the
    relation `relative`. The possessive 's is a determiner of the possessed noun, like il.
    """
    arcs = _within("subject", sentence.subject)
    arcs.append((_SUBJECT, "subject.head", "verb"))
    if sentence.obj is not None:
        arcs.append((_OBJECT, "object.head", "verb"))
        arcs += _within("object", sentence.obj)
    return arcs


def _within(role: str, phrase: Phrase) -> list[tuple[int, str, str]]:
    if not isinstance(phrase, CommonNoun):
        return []
    head = f"{role}.head"
    arcs = [(_DETERMINER, f"{role}.determiner", head)]
    if phrase.adjective is not None:
        arcs.append((_ADJECTIVE, f"{role}.adjective", head))
    if phrase.owner is not None:
        arcs.append((_POSSESSOR, f"{role}.owner", head))
    if phrase.relative is not None:
        verb, subject, obj = f"{role}.relative.verb", f"{role}.relative.subject", f"{role}.relative.object"
        arcs.append((_RELATIVE, verb, head))
        arcs.append((_SUBJECT, head if phrase.relative.subject is None else f"{subject}.head", verb))
        if phrase.relative.subject is not None:
            arcs.append((_OBJECT, head, verb))
            arcs += _within(subject, phrase.relative.subject)
        elif phrase.relative.obj is not None:
            arcs.append((_OBJECT, f"{obj}.head", verb))
            arcs += _within(obj, phrase.relative.obj)
    return arcs


Choose: TypeAlias = Callable[[str], int]
"""For a place an index into its `probabilities_of`."""


_COMMON, _NAME, _PRONOUN, _POSSESSED = range(4)
"""The kinds of noun phrase. Some places of a sentence allow only the first few."""
_NO_CLAUSE, _INTRANSITIVE, _OF_SUBJECT, _OF_OBJECT = range(4)
"""None, `that sleeps`, `that sees the cat`, `that the cat sees`."""

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


def _phrase(role: str, choose: Choose, lexicon: Lexicon, *, is_bare: bool = False) -> Phrase:
    """A bare noun phrase has neither owner nor adjective nor clause, so that clauses never nest."""
    kind = choose(f"{role}.kind")
    if kind == _NAME:
        return Name(lexicon.names[choose(f"{role}.name")])
    if kind == _PRONOUN:
        return Pronoun(choose(f"{role}.pronoun"))
    noun = lexicon.nouns[choose(f"{role}.noun")]
    plural = bool(choose(f"{role}.plural"))
    if is_bare:
        return CommonNoun(noun, plural, not choose(f"{role}.indefinite"))
    adjective = lexicon.adjectives[choose(f"{role}.adjective")] if choose(f"{role}.has_adjective") else None
    if kind == _POSSESSED:
        owner = lexicon.names[choose(f"{role}.name")]
        return CommonNoun(noun, plural, True, owner, adjective)
    definite = not choose(f"{role}.indefinite")
    return CommonNoun(noun, plural, definite, None, adjective, _relative(role, choose, lexicon))


def _relative(role: str, choose: Choose, lexicon: Lexicon) -> Relative | None:
    kind = choose(f"{role}.relative.kind")
    if kind == _NO_CLAUSE:
        return None
    if kind == _INTRANSITIVE:
        return Relative(lexicon.intransitive_verbs[choose(f"{role}.relative.verb.intransitive")])
    verb = lexicon.transitive_verbs[choose(f"{role}.relative.verb.transitive")]
    if kind == _OF_SUBJECT:
        return Relative(verb, obj=_phrase(f"{role}.relative.object", choose, lexicon, is_bare=True))
    return Relative(verb, subject=_phrase(f"{role}.relative.subject", choose, lexicon, is_bare=True))


def probabilities_of(lexicon: Lexicon) -> dict[str, tuple[float, ...]]:
    """Those of the choices at each place, also of choices that only the target shows."""
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
        table |= _phrase_probabilities(role, kinds, pronouns, lexicon) | {
            f"{role}.has_adjective": _yes(P_ADJECTIVE),
            f"{role}.adjective": zipf(len(lexicon.adjectives)),
            f"{role}.adjective.synonym": SYNONYMS,
            f"{role}.relative.kind": RELATIVE_KINDS,
            f"{role}.relative.verb.intransitive": intransitive,
            f"{role}.relative.verb.transitive": transitive,
            f"{role}.relative.verb.synonym": SYNONYMS,
        }
        table |= _phrase_probabilities(f"{role}.relative.subject", RELATIVE_SUBJECT_KINDS, (), lexicon)
        table |= _phrase_probabilities(f"{role}.relative.object", RELATIVE_OBJECT_KINDS, OBJECT_PRONOUNS, lexicon)
    return table


def _phrase_probabilities(
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
