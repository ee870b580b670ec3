"""Writes trees in the Italian-like target language: word order, gender and number, clitics, and two choices that the
source does not show: whether a subject pronoun is dropped, and which synonym is used. The -log p of a choice counts at
the first word that reveals it."""

import math
from typing import NamedTuple

from attnsweep.workloads.translation.grammar.lexicon import Lexeme
from attnsweep.workloads.translation.grammar.tree import (
    P_PRONOUN_DROPPED,
    SYNONYMS,
    Choose,
    CommonNoun,
    Name,
    Phrase,
    Pronoun,
    Relative,
    Sentence,
    person,
)

SUBJECT_PRONOUNS = ("io", "tu", "noi")
# The hyphen distinguishes `la-` (her) from `la` (the). So each target sentence has exactly one tree.
CLITICS = ("lo-", "la-", "li-")
DEFINITE = ("il", "i", "la", "le")
INDEFINITE = ("un", "alcuni", "una", "alcune")
OF, NOT, THAT = "di", "non", "che"
FUNCTION_WORDS = (*SUBJECT_PRONOUNS, *CLITICS, *DEFINITE, *INDEFINITE, OF, NOT, THAT)

_DROP_NATS = (-math.log(1.0 - P_PRONOUN_DROPPED), -math.log(P_PRONOUN_DROPPED))
_SYNONYM_NATS = tuple(-math.log(p) for p in SYNONYMS)


class TargetWord(NamedTuple):
    """A word of the target sentence, its `place` in the tree, and `nats`, -log p(word | tree, words before)."""

    place: str
    text: str
    nats: float = 0.0


def target_words(sentence: Sentence, choose: Choose) -> list[TargetWord]:
    """`choose` decides on synonyms and dropped pronouns."""
    subject, obj = sentence.subject, sentence.obj
    dropped = isinstance(subject, Pronoun) and choose("subject.dropped")
    words = [] if dropped else _phrase("subject", subject, choose)
    if sentence.negated:
        words.append(TargetWord("not", NOT))
    if isinstance(obj, Pronoun):
        words.append(TargetWord("object.head", CLITICS[obj.number]))
    words.append(_lexical("verb", "verb", sentence.verb, person(subject), choose))
    if sentence.adverb is not None:
        words.append(_lexical("adverb", "adverb", sentence.adverb, 0, choose))
    if obj is not None and not isinstance(obj, Pronoun):
        words += _phrase("object", obj, choose)
    if isinstance(subject, Pronoun):
        # The first target word shows whether the pronoun was dropped.
        words[0] = words[0]._replace(nats=words[0].nats + _DROP_NATS[dropped])
    return words


def _phrase(role: str, phrase: Phrase, choose: Choose) -> list[TargetWord]:
    if isinstance(phrase, Pronoun):
        return [TargetWord(f"{role}.head", SUBJECT_PRONOUNS[phrase.number])]
    if isinstance(phrase, Name):
        return [TargetWord(f"{role}.head", phrase.word)]
    agreement = 2 * phrase.noun.feminine + phrase.plural
    words = [
        TargetWord(f"{role}.determiner", (DEFINITE if phrase.definite else INDEFINITE)[agreement]),
        _lexical(f"{role}.head", f"{role}.noun", phrase.noun, phrase.plural, choose),
    ]
    if phrase.adjective is not None:
        words.append(_lexical(f"{role}.adjective", f"{role}.adjective", phrase.adjective, agreement, choose))
    if phrase.owner is not None:
        words += [TargetWord(f"{role}.of", OF), TargetWord(f"{role}.owner", phrase.owner)]
    if phrase.relative is not None:
        words += _relative(role, phrase, phrase.relative, choose)
    return words


def _relative(role: str, head: CommonNoun, relative: Relative, choose: Choose) -> list[TargetWord]:
    words = [TargetWord(f"{role}.relative.that", THAT)]
    subject, obj = relative.subject, relative.obj
    if subject is not None:
        words += _phrase(f"{role}.relative.subject", subject, choose)
    if isinstance(obj, Pronoun):
        words.append(TargetWord(f"{role}.relative.object.head", CLITICS[obj.number]))
    verb = f"{role}.relative.verb"
    words.append(_lexical(verb, verb, relative.verb, person(head if subject is None else subject), choose))
    if obj is not None and not isinstance(obj, Pronoun):
        words += _phrase(f"{role}.relative.object", obj, choose)
    return words


def _lexical(place: str, choice: str, lexeme: Lexeme, form: int, choose: Choose) -> TargetWord:
    if len(lexeme.target) == 1:
        return TargetWord(place, lexeme.target[0][form])
    synonym = choose(f"{choice}.synonym")
    return TargetWord(place, lexeme.target[synonym][form], _SYNONYM_NATS[synonym])
