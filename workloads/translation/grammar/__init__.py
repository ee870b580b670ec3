"""A synthetic bilingual grammar: sentence pairs of known syntax, alignment and entropy. See docs/grammar.md."""

from attnsweep.workloads.translation.grammar.lexicon import Lexicon, LexiconSizes
from attnsweep.workloads.translation.grammar.sentence_pairs import (
    SentencePair,
    arcs_as_text,
    grammar_corpus,
    pair_as_text,
    sentence_pair,
)
from attnsweep.workloads.translation.grammar.tree import RELATIONS

__all__ = [
    "RELATIONS",
    "Lexicon",
    "LexiconSizes",
    "SentencePair",
    "arcs_as_text",
    "grammar_corpus",
    "pair_as_text",
    "sentence_pair",
]
