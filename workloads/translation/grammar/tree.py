"""The derivation of a sentence: its meaning, before a language's word order, agreement and choice of synonyms."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from attnsweep.workloads.translation.grammar.common_words import Lexeme


class Person(IntEnum):
    """The persons that a verb agrees with, in the order of its target forms."""

    I = 0  # noqa: E741 (the pronoun's own name)
    YOU = 1
    WE = 2
    SINGULAR = 3
    PLURAL = 4


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A personal pronoun: i, you, we as a subject (`Person` 0 to 2); him, her, them as an object."""

    number: int


@dataclass(frozen=True, slots=True)
class Name:
    """A proper name, the same in both languages, third person singular."""

    word: str


@dataclass(frozen=True, slots=True)
class CommonNoun:
    """A noun and its modifiers.

    Attributes:
        noun: The head.
        plural: Whether it is plural.
        definite: Whether its determiner is definite; true if it has an owner.
        owner: The owner, as in `tom 's dog`, or None.
        adjective: At most one.
        relative: A relative clause, None with an owner and within a relative clause.
    """

    noun: Lexeme
    plural: bool
    definite: bool
    owner: str | None = None
    adjective: Lexeme | None = None
    relative: "Relative | None" = None


Phrase: TypeAlias = Pronoun | Name | CommonNoun


@dataclass(frozen=True, slots=True)
class Relative:
    """A relative clause. The noun it modifies is its subject if `subject` is None, else its object.

    Attributes:
        verb: Intransitive if both phrases are None.
        subject: `the cat` in `that the cat sees`.
        obj: `the cat` in `that sees the cat`.
    """

    verb: Lexeme
    subject: Phrase | None = None
    obj: Phrase | None = None


@dataclass(frozen=True, slots=True)
class Sentence:
    """A main clause; `obj` is None where the verb is intransitive."""

    subject: Phrase
    verb: Lexeme
    negated: bool
    obj: Phrase | None
    adverb: Lexeme | None


def person(subject: Phrase) -> Person:
    """The person that a verb with this subject agrees with."""
    if isinstance(subject, Pronoun):
        return Person(subject.number)
    if isinstance(subject, CommonNoun) and subject.plural:
        return Person.PLURAL
    return Person.SINGULAR


RELATIONS = ("subject", "object", "adjective", "determiner", "possessor", "relative")
_SUBJECT, _OBJECT, _ADJECTIVE, _DETERMINER, _POSSESSOR, _RELATIVE = range(len(RELATIONS))


def dependencies(sentence: Sentence) -> list[tuple[int, str, str]]:
    """(relation, dependent place, governor place) of every arc.

    The noun that a relative clause modifies is the subject or object of the clause's verb, and the verb depends on the
    noun by `relative`. The possessive 's is a determiner of the possessed noun, like il.
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
