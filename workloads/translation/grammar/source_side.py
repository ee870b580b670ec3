"""Writes trees in the English-like source language: word order and agreement. A tree has one source sentence."""

from attnsweep.workloads.translation.grammar.lexicon import Lexeme
from attnsweep.workloads.translation.grammar.tree import (
    CommonNoun,
    Name,
    Person,
    Phrase,
    Pronoun,
    Relative,
    Sentence,
    person,
)

SUBJECT_PRONOUNS = ("i", "you", "we")
OBJECT_PRONOUNS = ("him", "her", "them")
DEFINITE, INDEFINITE, POSSESSIVE = ("the", "the"), ("a", "some"), "'s"
DOES, DO, NOT, THAT = "does", "do", "not", "that"
FUNCTION_WORDS = (*SUBJECT_PRONOUNS, *OBJECT_PRONOUNS, *DEFINITE[:1], *INDEFINITE, POSSESSIVE, DOES, DO, NOT, THAT)


def source_words(sentence: Sentence) -> dict[str, str]:
    """In order, by their places in the tree, such as `subject.head`."""
    words = _phrase("subject", SUBJECT_PRONOUNS, sentence.subject)
    agreement = person(sentence.subject)
    if sentence.negated:
        words["auxiliary"] = DOES if agreement == Person.SINGULAR else DO
        words["not"] = NOT
        words["verb"] = sentence.verb.source[0]
    else:
        words["verb"] = _verb(sentence.verb, agreement)
    if sentence.obj is not None:
        words |= _phrase("object", OBJECT_PRONOUNS, sentence.obj)
    if sentence.adverb is not None:
        words["adverb"] = sentence.adverb.source[0]
    return words


def _phrase(role: str, pronouns: tuple[str, ...], phrase: Phrase) -> dict[str, str]:
    if isinstance(phrase, Pronoun):
        return {f"{role}.head": pronouns[phrase.number]}
    if isinstance(phrase, Name):
        return {f"{role}.head": phrase.word}
    words = {}
    if phrase.owner is None:
        words[f"{role}.determiner"] = (DEFINITE if phrase.definite else INDEFINITE)[phrase.plural]
    else:
        words[f"{role}.owner"] = phrase.owner
        words[f"{role}.determiner"] = POSSESSIVE
    if phrase.adjective is not None:
        words[f"{role}.adjective"] = phrase.adjective.source[0]
    words[f"{role}.head"] = phrase.noun.source[phrase.plural]
    if phrase.relative is not None:
        words |= _relative(role, phrase, phrase.relative)
    return words


def _relative(role: str, head: CommonNoun, relative: Relative) -> dict[str, str]:
    words = {f"{role}.relative.that": THAT}
    if relative.subject is not None:
        words |= _phrase(f"{role}.relative.subject", SUBJECT_PRONOUNS, relative.subject)
    words[f"{role}.relative.verb"] = _verb(
        relative.verb, person(head if relative.subject is None else relative.subject)
    )
    if relative.obj is not None:
        words |= _phrase(f"{role}.relative.object", OBJECT_PRONOUNS, relative.obj)
    return words


def _verb(verb: Lexeme, agreement: Person) -> str:
    return verb.source[agreement == Person.SINGULAR]
