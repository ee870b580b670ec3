"""Sentence pairs as text, for documents and for looking."""

from attnsweep.workloads.translation.grammar.dependencies import RELATIONS
from attnsweep.workloads.translation.grammar.sentence_pairs import Arc, SentencePair


def pair_as_text(pair: SentencePair) -> str:
    """`the dog sleeps -> il cane dorme`."""
    return f"{' '.join(pair.source)} -> {' '.join(pair.target)}"


def arcs_as_text(words: tuple[str, ...], arcs: list[Arc]) -> str:
    """A line for each arc, dependent before governor: `subject: dog (1) -> sleeps (2)`."""
    return "\n".join(
        f"{RELATIONS[relation]}: {words[dependent]} ({dependent}) -> {words[governor]} ({governor})"
        for relation, dependent, governor in arcs
    )
