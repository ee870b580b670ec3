"""Word order, agreement, alignment and arcs of hand-made trees, construction by construction."""

import math

import pytest

from attnsweep.workloads.translation.grammar.lexicon import Lexicon, LexiconSizes
from attnsweep.workloads.translation.grammar.sentence_pairs import sentence_pairs
from attnsweep.workloads.translation.grammar.source_side import source_words
from attnsweep.workloads.translation.grammar.target_side import target_words
from attnsweep.workloads.translation.grammar.tree import (
    RELATIONS,
    Choose,
    CommonNoun,
    Name,
    Pronoun,
    Relative,
    Sentence,
    dependencies,
)

LEXICON = Lexicon(LexiconSizes())
DOG, CAT, GIRL = LEXICON.nouns[:3]
SEE, LOVE = LEXICON.transitive_verbs[:2]
SLEEP = LEXICON.intransitive_verbs[0]
OLD = LEXICON.adjectives[0]
OFTEN = LEXICON.adverbs[0]
THE_DOG, THE_GIRL = CommonNoun(DOG, False, True), CommonNoun(GIRL, False, True)
ME, YOU, WE = Pronoun(0), Pronoun(1), Pronoun(2)
HIM, HER, THEM = Pronoun(0), Pronoun(1), Pronoun(2)
TOM = Name("tom")


def never(place: str) -> int:
    return 0


def always(place: str) -> int:
    return 1


SENTENCES = {
    "noun": (Sentence(THE_DOG, SLEEP, False, None, None), "the dog sleeps", "il cane dorme"),
    "feminine": (Sentence(THE_GIRL, SLEEP, False, None, None), "the girl sleeps", "la ragazza dorme"),
    "indefinite": (
        Sentence(CommonNoun(GIRL, False, False), SEE, False, CommonNoun(DOG, False, False), None),
        "a girl sees a dog",
        "una ragazza vede un cane",
    ),
    "plural": (
        Sentence(CommonNoun(DOG, True, True), SEE, False, CommonNoun(GIRL, True, True), None),
        "the dogs see the girls",
        "i cani vedono le ragazze",
    ),
    "some": (
        Sentence(CommonNoun(DOG, True, False), SEE, False, CommonNoun(GIRL, True, False), None),
        "some dogs see some girls",
        "alcuni cani vedono alcune ragazze",
    ),
    "adjective": (
        Sentence(CommonNoun(DOG, False, True, None, OLD), SEE, False, CommonNoun(GIRL, True, True, None, OLD), None),
        "the old dog sees the old girls",
        "il cane vecchio vede le ragazze vecchie",
    ),
    "owner": (
        Sentence(CommonNoun(DOG, False, True, "tom", OLD), SLEEP, False, None, None),
        "tom 's old dog sleeps",
        "il cane vecchio di tom dorme",
    ),
    "name": (Sentence(TOM, SEE, False, Name("anna"), None), "tom sees anna", "tom vede anna"),
    "clitic": (Sentence(TOM, SEE, False, HER, None), "tom sees her", "tom la- vede"),
    "negation": (
        Sentence(CommonNoun(DOG, True, True), SEE, True, THEM, None),
        "the dogs do not see them",
        "i cani non li- vedono",
    ),
    "negation, third person": (
        Sentence(TOM, SEE, True, THE_DOG, OFTEN),
        "tom does not see the dog often",
        "tom non vede spesso il cane",
    ),
    "i": (Sentence(ME, SEE, False, HIM, None), "i see him", "io lo- vedo"),
    "you": (Sentence(YOU, SEE, True, TOM, None), "you do not see tom", "tu non vedi tom"),
    "we": (Sentence(WE, SLEEP, False, None, OFTEN), "we sleep often", "noi dormiamo spesso"),
    "relative, intransitive": (
        Sentence(CommonNoun(DOG, True, True, None, None, Relative(SLEEP)), SLEEP, False, None, None),
        "the dogs that sleep sleep",
        "i cani che dormono dormono",
    ),
    "relative of the subject": (
        Sentence(CommonNoun(DOG, True, True, None, OLD, Relative(SEE, obj=THE_GIRL)), SEE, False, TOM, None),
        "the old dogs that see the girl see tom",
        "i cani vecchi che vedono la ragazza vedono tom",
    ),
    "relative of the subject, clitic": (
        Sentence(TOM, SEE, False, CommonNoun(DOG, False, True, None, None, Relative(SEE, obj=HIM)), None),
        "tom sees the dog that sees him",
        "tom vede il cane che lo- vede",
    ),
    "relative of the object": (
        Sentence(CommonNoun(DOG, True, True, None, None, Relative(SEE, subject=THE_GIRL)), SLEEP, False, None, OFTEN),
        "the dogs that the girl sees sleep often",
        "i cani che la ragazza vede dormono spesso",
    ),
}


@pytest.mark.parametrize(("sentence", "source", "target"), SENTENCES.values(), ids=SENTENCES.keys())
def test_a_tree_in_both_languages(sentence: Sentence, source: str, target: str) -> None:
    assert " ".join(source_words(sentence).values()) == source
    assert " ".join(word.text for word in target_words(sentence, never)) == target


def test_a_dropped_pronoun_leaves_the_verb_to_tell_the_person() -> None:
    words = target_words(Sentence(WE, SEE, True, HIM, None), always)
    assert " ".join(word.text for word in words) == "non lo- vediamo"
    assert [word.nats for word in words] == [math.log(2), 0.0, 0.0]


@pytest.mark.parametrize(
    ("choose", "target", "nats"),
    [
        (never, "noi amiamo il gatto", [math.log(2), -math.log(0.7), 0, -math.log(0.7)]),
        (always, "adoriamo il micio", [math.log(2) - math.log(0.3), 0, -math.log(0.3)]),
    ],
)
def test_choices_cost_at_the_word_that_shows_them(choose: Choose, target: str, nats: list[float]) -> None:
    words = target_words(Sentence(WE, LOVE, False, CommonNoun(CAT, False, True), None), choose)
    assert " ".join(word.text for word in words) == target
    assert [word.nats for word in words] == pytest.approx(nats)


def test_arcs_reach_over_relative_clauses() -> None:
    sentence, _, _ = SENTENCES["relative of the object"]
    source = source_words(sentence)
    arcs = {
        (RELATIONS[relation], source[dependent], source[governor])
        for relation, dependent, governor in dependencies(sentence)
    }
    assert arcs == {
        ("subject", "dogs", "sleep"),
        ("subject", "girl", "sees"),
        ("object", "dogs", "sees"),
        ("relative", "sees", "dogs"),
        ("determiner", "the", "dogs"),
        ("determiner", "the", "girl"),
    }


def test_alignment_joins_translations() -> None:
    """The alignment that follows from equal names, lexemes and functions, word by word."""
    lexicon = Lexicon(LexiconSizes())
    source_of = {form: lexeme.source for lexeme in lexicon.lexemes for forms in lexeme.target for form in forms}
    source_of |= {name: (name,) for name in lexicon.names}
    source_of |= {"non": ("not",), "che": ("that",), "di": ("'s",), "io": ("i",), "tu": ("you",), "noi": ("we",)}
    source_of |= {"lo-": ("him",), "la-": ("her",), "li-": ("them",)}
    source_of |= dict.fromkeys(("il", "i", "la", "le"), ("the", "'s"))
    source_of |= {"un": ("a",), "una": ("a",), "alcuni": ("some",), "alcune": ("some",)}
    pairs = sentence_pairs(lexicon, seed=5)
    for _ in range(300):
        pair = next(pairs)
        for word, position in zip(pair.target, pair.alignment, strict=True):
            assert pair.source[position] in source_of[word], pair
        untranslated = set(range(len(pair.source))) - set(pair.alignment)
        assert {pair.source[i] for i in untranslated} <= {"do", "does", "i", "you", "we"}
