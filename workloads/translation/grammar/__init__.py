"""A synthetic bilingual grammar: sentence pairs of known syntax, alignment and entropy. See docs/workloads.md."""

from attnsweep.workloads.translation.grammar.lexicon import Lexicon, LexiconSizes
from attnsweep.workloads.translation.grammar.sentence_pairs import SentencePair, grammar_corpus, sentence_pair
from attnsweep.workloads.translation.grammar.tree import RELATIONS

__all__ = ["RELATIONS", "Lexicon", "LexiconSizes", "SentencePair", "grammar_corpus", "sentence_pair"]
