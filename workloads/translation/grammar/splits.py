"""Which sentences are trained on, and which are kept for looking and for testing."""

from itertools import islice

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.translation.grammar.lexicon import Lexicon
from attnsweep.workloads.translation.grammar.sentence_pairs import SentencePair, sentence_pairs

DRAWS_PER_HELD_OUT = 50
"""A grammar so small that this many draws do not give a new sentence is refused."""


def split_sentences(
    lexicon: Lexicon, n_train: int, n_valid: int, n_test: int, seed: int
) -> tuple[list[SentencePair], list[SentencePair]]:
    """The training sentences, and the validation then test sentences.

    Training takes the stream as it comes, repetitions included. The others are the sentences after those whose source
    has not been drawn before.

    Raises:
        SpecError: If a part is impossible, or the grammar has too few sentences.
    """
    for name, size, least in (("n_train", n_train, 1), ("n_valid", n_valid, 0), ("n_test", n_test, 0)):
        if size < least:
            raise SpecError(name, given=size, expected=f"at least {least} sentences", fix=f"raise {name}")
    n_held_out = n_valid + n_test
    stream = sentence_pairs(lexicon, seed)
    train = list(islice(stream, n_train))
    seen = {pair.source for pair in train}
    held_out: list[SentencePair] = []
    for pair in islice(stream, DRAWS_PER_HELD_OUT * n_held_out):
        if len(held_out) == n_held_out:
            break
        if pair.source not in seen:
            seen.add(pair.source)
            held_out.append(pair)
    if len(held_out) < n_held_out:
        raise SpecError(
            "n_valid + n_test",
            given=n_held_out,
            expected=f"sentences that training lacks: {DRAWS_PER_HELD_OUT * n_held_out} draws gave {len(held_out)}",
            fix="enlarge the lexicon (n_nouns, n_names, ...), or lower n_train, n_valid or n_test",
        )
    return train, held_out
