"""The tree of a sentence, which both languages express: the words and their relations, without order or agreement."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from attnsweep.workloads.translation.grammar.common_words import Lexeme


class Person(IntEnum):
    """The grammatical persons, in the order of a verb's forms in the target language."""

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
    """A proper name, which both languages share. Verbs agree in the third person singular."""

    word: str


@dataclass(frozen=True, slots=True)
class CommonNoun:
    """A noun phrase: a common noun and its modifiers.

    Attributes:
        noun: The head of the phrase.
        plural: Whether the noun is plural.
        definite: Whether the determiner is definite; true if there is an owner.
        owner: The owner, as in `tom 's dog`, or None.
        adjective: An adjective, or None.
        relative: A relative clause, or None; always None with an owner and within a relative clause.
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
    """A relative clause. The modified noun is the clause's subject if `subject` is None, else its object.

    Attributes:
        verb: The verb, which is intransitive if both phrases are None.
        subject: The subject, such as `the cat` in `that the cat sees`, or None.
        obj: The object, such as `the cat` in `that sees the cat`, or None.
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
    if isinstance(subject, Pronoun):
        return Person(subject.number)
    if isinstance(subject, CommonNoun) and subject.plural:
        return Person.PLURAL
    return Person.SINGULAR


RELATIONS = ("subject", "object", "adjective", "determiner", "possessor", "relative")
_SUBJECT, _OBJECT, _ADJECTIVE, _DETERMINER, _POSSESSOR, _RELATIVE = range(len(RELATIONS))


def dependencies(sentence: Sentence) -> list[tuple[int, str, str]]:
    """Returns all dependency arcs of a sentence as (relation, place of the dependent, place of the governor).

    The noun that a relative clause modifies is the subject or object of the clause's verb, and the verb depends on the
    noun by the relation `relative`. The possessive 's is a determiner of the possessed noun, like il.
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
