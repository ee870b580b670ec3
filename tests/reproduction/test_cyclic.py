"""Words add up to the gradient that autograd computes, and there are as many as the formulas say."""

from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.reproduction.cyclic import note
from attnsweep.reproduction.cyclic.words import Expression, Letter, Sum, product, transposed, words_of, written


@pytest.mark.parametrize(
    ("n_levels", "attention", "has_skip"),
    [
        *((1, "linear", False), (1, "encoder", False), (2, "linear", False), (2, "encoder", False)),
        *((2, "encoder", True), (3, "softmax", False), (3, "softmax", True)),
    ],
)
def test_words_add_up_to_autograds_gradient(n_levels: int, attention: note.Attention, has_skip: bool) -> None:
    errors, _ = note.largest_errors(n_levels, attention, has_skip=has_skip)
    assert len(errors) == n_levels * (6 if attention == "encoder" else 3)
    assert max(errors.values()) < note.EXACT


@pytest.mark.parametrize(("has_skip", "base"), [(False, 3), (True, 4)])
def test_each_level_multiplies_the_words_of_the_levels_below(has_skip: bool, base: int) -> None:
    for n_levels in (1, 2, 3):
        counts = Counter(
            word.letter for word in words_of(note.model(n_levels, "softmax", has_skip=has_skip), Letter("E"))
        )
        for number in range(1, n_levels + 1):
            expected = base ** (n_levels - number)
            assert [counts[f"{name}{number}"] for name in "QKV"] == [expected] * 3


def test_a_sum_in_a_word_stands_in_brackets() -> None:
    A, B, C = map(Letter, "ABC")
    assert written(product(transposed(product(A, Sum((B, C)))), B)) == "(B + C)' A' B"
    names: dict[Expression, str] = {Sum((B, C)): "D"}
    assert written(product(A, transposed(Sum((B, C)))), names) == "A D'"


MISPRINTS = {"the same as matrices differ by", "the same as printed, by sum e^x", "the same as printed, with B E' A"}


def test_words_and_counts_agree_and_what_is_misprinted_differs(tmp_path: Path) -> None:
    found = note.reproduce(tmp_path, Console(quiet=True))
    assert {row.name for row in found.rows if row.agrees is False} == MISPRINTS
    assert all(float(row.ours) > 0.1 for row in found.rows if row.name in MISPRINTS)
    _, *encoder = dict(found.tables)["The words of one encoder, E = Y - F; Z = s X Q K' X', H = a(Z) X V + C b"]
    assert {name: word for name, word, _ in encoder} == {
        "Q": "-X' s' aa(Z, mm(H, E W') V' X') X K",
        "K": "-X' aa(Z, mm(H, E W') V' X')' s X Q",
        "V": "-X' a(Z)' mm(H, E W')",
        "W": "-m(H)' E",
        "b": "-C' mm(H, E W')",
        "c": "-C' E",
    }


def test_the_corrected_rules_hold() -> None:
    assert note.swapped_rectifier()[0] < 1e-14
    assert note.softmax_denominator()[0] < 1e-14
    assert note.softmax_substitution()[0] < 1e-14
