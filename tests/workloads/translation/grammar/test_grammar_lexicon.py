"""The words: as many as asked for, all different, the small lexicon at the beginning of the large one."""

import re
from itertools import chain, islice

import pytest

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.translation.grammar import source_side, target_side
from attnsweep.workloads.translation.grammar.lexicon import (
    MOST_LEXEMES,
    SYNONYM_PERIOD,
    Lexicon,
    LexiconSizes,
    stems,
    zipf,
)

# Every class has stems of three syllables.
LARGE = LexiconSizes(
    n_nouns=5_000, n_transitive_verbs=4_000, n_intransitive_verbs=4_000, n_adjectives=4_000, n_names=5_000
)
STEM = r"([bdfgklmnprstvz][aeiou]){2,}"
GENERATED_SOURCE = re.compile(STEM + "(ts?|ks?|ps?|l|n)")
GENERATED_TARGET = re.compile(STEM + "(t[oiae]|[rv](o|i|iamo|e|ono)|s[oiae]|n)")


def test_no_word_is_of_two_lexemes_forms_or_classes() -> None:
    lexicon = Lexicon(LARGE)
    source = [*source_side.FUNCTION_WORDS, *lexicon.names, *chain(*(lexeme.source for lexeme in lexicon.lexemes))]
    target = [*target_side.FUNCTION_WORDS, *lexicon.names]
    target += chain(*(chain(*lexeme.target) for lexeme in lexicon.lexemes))

    assert len(set(source)) == len(source) == 14 + 5_000 + 2 * 13_000 + 4_000 + 6
    assert len(set(target)) == len(target)


def test_no_word_written_by_hand_could_be_generated_however_large_the_lexicon() -> None:
    common = Lexicon(LexiconSizes(n_nouns=12, n_transitive_verbs=8, n_intransitive_verbs=5, n_adjectives=6, n_names=10))
    source = [*source_side.FUNCTION_WORDS, *common.names, *chain(*(lexeme.source for lexeme in common.lexemes))]
    target = [*target_side.FUNCTION_WORDS, *common.names, *chain(*(chain(*x.target) for x in common.lexemes))]
    assert [word for word in source if GENERATED_SOURCE.fullmatch(word)] == []
    assert [word for word in target if GENERATED_TARGET.fullmatch(word)] == []

    large = Lexicon(LARGE)
    assert all(GENERATED_SOURCE.fullmatch(form) for lexeme in large.nouns[12:] for form in lexeme.source)
    assert all(GENERATED_TARGET.fullmatch(form) for x in large.transitive_verbs[8:] for form in chain(*x.target))


def test_a_small_lexicon_begins_a_large_one() -> None:
    small, large = Lexicon(LexiconSizes(n_nouns=30, n_names=1)), Lexicon(LARGE)
    assert small.nouns == large.nouns[:30]
    assert small.names == ("tom",)
    assert small.adjectives == large.adjectives[:8]


def test_every_third_lexeme_has_two_translations() -> None:
    lexicon = Lexicon(LARGE)
    for lexemes in (lexicon.nouns, lexicon.transitive_verbs, lexicon.intransitive_verbs, lexicon.adjectives):
        for i, lexeme in enumerate(lexemes):
            assert len(lexeme.target) == (2 if i % SYNONYM_PERIOD == 1 else 1), lexeme
            assert len({len(forms) for forms in lexeme.target}) == 1


def test_all_lexemes_of_a_class_have_all_forms() -> None:
    lexicon = Lexicon(LARGE)
    for lexemes, n_source, n_target in (
        (lexicon.nouns, 2, 2),
        (lexicon.transitive_verbs, 2, 5),
        (lexicon.intransitive_verbs, 2, 5),
        (lexicon.adjectives, 1, 4),
        (lexicon.adverbs, 1, 1),
    ):
        assert {(len(x.source), len(forms)) for x in lexemes for forms in x.target} == {(n_source, n_target)}


def test_stems_beyond_two_syllables_are_new() -> None:
    drawn = list(islice(stems("t"), 6_000))
    assert len(set(drawn)) == 6_000
    assert {len(stem) for stem in drawn[:4_900]} == {4}
    assert {len(stem) for stem in drawn[4_900:]} == {6}


def test_zipf_falls_as_one_over_the_rank() -> None:
    p = zipf(40)
    assert sum(p) == pytest.approx(1.0)
    assert p[0] == pytest.approx(40 * p[39])


@pytest.mark.parametrize("size", [0, MOST_LEXEMES + 1])
def test_a_class_is_neither_empty_nor_endless(size: int) -> None:
    with pytest.raises(SpecError, match=rf"n_names: got {size}, expected a number of lexemes from 1 to 100000"):
        LexiconSizes(n_names=size)
