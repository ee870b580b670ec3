"""`attnsweep reproduce cyclic-words`."""

from pathlib import Path

from rich.console import Console

from attnsweep.reproduction.cyclic import note

MISPRINTS = {"the same as matrices differ by", "the same as printed, by sum e^x", "the same as printed, with B E' A"}


def test_words_and_counts_agree_and_what_is_misprinted_differs(tmp_path: Path) -> None:
    found = note.reproduce(tmp_path, Console(quiet=True))
    assert {row.name for row in found.rows if row.agrees is False} == MISPRINTS
    assert all(float(row.ours) > 0.1 for row in found.rows if row.name in MISPRINTS)
    encoder = dict(found.tables)["The words of one encoder, E = Y - F; Z = s X Q K' X', H = a(Z) X V + C b"]
    assert [row[:2] for row in encoder if row[0] in "QW"] == [
        ["Q", "-X' s' aa(Z, mm(H, E W') V' X') X K"],
        ["W", "-m(H)' E"],
    ]


def test_the_corrected_rules_hold() -> None:
    assert note.swapped_rectifier()[0] < 1e-14
    assert note.softmax_denominator()[0] < 1e-14
    assert note.softmax_substitution()[0] < 1e-14
