"""The words: as many as asked for, all different, the small lexicon at the beginning of the large one."""

from itertools import chain

from attnsweep.workloads.translation.grammar import source_side, target_side
from attnsweep.workloads.translation.grammar.lexicon import Lexicon, LexiconSizes

# Every class has stems of three syllables.
LARGE = LexiconSizes(
    n_nouns=5_000, n_transitive_verbs=4_000, n_intransitive_verbs=4_000, n_adjectives=4_000, n_names=5_000
)


def test_no_word_is_of_two_lexemes_forms_or_classes() -> None:
    lexicon = Lexicon(LARGE)
    source = [*source_side.FUNCTION_WORDS, *lexicon.names, *chain(*(lexeme.source for lexeme in lexicon.lexemes))]
    target = [*target_side.FUNCTION_WORDS, *lexicon.names]
    target += chain(*(chain(*lexeme.target) for lexeme in lexicon.lexemes))

    assert len(set(source)) == len(source) == 14 + 5_000 + 2 * 13_000 + 4_000 + 6
    assert len(set(target)) == len(target)
