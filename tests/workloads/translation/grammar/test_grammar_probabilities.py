"""Both languages determine the tree, and every probability equals the one from enumerating all trees."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import pytest

from attnsweep.workloads.translation.grammar.lexicon import Lexicon, LexiconSizes
from attnsweep.workloads.translation.grammar.sentence_pairs import sentence_pairs
from attnsweep.workloads.translation.grammar.source_side import source_words
from attnsweep.workloads.translation.grammar.target_side import target_words
from attnsweep.workloads.translation.grammar.tree import Choose, Sentence, derive, probabilities_of

SMALL = Lexicon(LexiconSizes(n_nouns=2, n_transitive_verbs=2, n_intransitive_verbs=1, n_adjectives=1, n_names=1))
WITHOUT_ADVERB = {"adverb.present": 0}
SIMPLE_OBJECT = {**WITHOUT_ADVERB, "object.kind": 2, "object.pronoun": 0}
SIMPLE_SUBJECT = {**WITHOUT_ADVERB, "subject.kind": 1}
SHORT = {"subject.relative.kind": 0, "object.relative.kind": 0, "adverb.word": 0, "verb.negated": 0}


def outcomes(
    make: Callable[[Choose], Sentence], lexicon: Lexicon, pinned: Mapping[str, int]
) -> Iterator[tuple[Sentence, tuple[str, ...], float, float, float]]:
    """All possible results: tree, target, p(tree), p(target | tree), reported nats. Pinned choices are certain."""
    table = probabilities_of(lexicon)
    path: list[tuple[str, int]] = []
    while True:
        asked = 0
        p = 1.0

        def choose(place: str) -> int:
            nonlocal asked, p
            if place in pinned:
                return pinned[place]
            if asked == len(path):
                path.append((place, 0))
            assert path[asked][0] == place
            asked += 1
            p *= table[place][path[asked - 1][1]]
            return path[asked - 1][1]

        tree = make(choose)
        p_tree = p
        words = target_words(tree, choose)
        yield tree, tuple(word.text for word in words), p_tree, p / p_tree, sum(word.nats for word in words)
        while path and path[-1][1] + 1 == len(table[path[-1][0]]):
            path.pop()
        if not path:
            return
        place, outcome = path.pop()
        path.append((place, outcome + 1))


def all_of(pinned: Mapping[str, int]) -> list[tuple[Sentence, tuple[str, ...], float, float, float]]:
    return list(outcomes(lambda choose: derive(choose, SMALL), SMALL, pinned))


@pytest.mark.slow
@pytest.mark.sample("objects")
@pytest.mark.parametrize("pinned", [SIMPLE_OBJECT, SIMPLE_SUBJECT, SHORT], ids=["subjects", "objects", "short"])
def test_no_two_trees_share_a_sentence_in_either_language(pinned: Mapping[str, int]) -> None:
    trees_by_source: defaultdict[tuple[str, ...], set[Sentence]] = defaultdict(set)
    trees_by_target: Counter[tuple[str, ...]] = Counter()
    for tree, target, *_ in all_of(pinned):
        trees_by_source[tuple(source_words(tree).values())].add(tree)
        trees_by_target[target] += 1
    assert max(map(len, trees_by_source.values())) == 1
    assert max(trees_by_target.values()) == 1  # nor two ways to choose a tree's words


@pytest.mark.slow
@pytest.mark.sample("objects")
@pytest.mark.parametrize("pinned", [SIMPLE_OBJECT, SIMPLE_SUBJECT, SHORT], ids=["subjects", "objects", "short"])
def test_probabilities_sum_to_one_and_tokens_pay_for_the_targets_choices(pinned: Mapping[str, int]) -> None:
    everything = all_of(pinned)
    assert len(everything) > 500
    assert math.fsum(p_tree * p_choices for _, _, p_tree, p_choices, _ in everything) == pytest.approx(1.0)
    for _, _, _, p_choices, nats in everything:
        assert nats == pytest.approx(-math.log(p_choices))


@pytest.mark.slow
def test_frequencies_are_those_that_target_nats_tell() -> None:
    n_sentences = 10_000
    counts: Counter[tuple[str, ...]] = Counter()
    nats: dict[tuple[str, ...], float] = {}
    for pair in islice(sentence_pairs(SMALL, seed=2), n_sentences):
        counts[pair.target] += 1
        nats[pair.target] = pair.target_nats
    frequent = [target for target in counts if math.exp(-nats[target]) > 0.002]
    assert len(frequent) > 10
    for target in frequent:
        expected = n_sentences * math.exp(-nats[target])
        assert abs(counts[target] - expected) < 4.5 * math.sqrt(expected), target
