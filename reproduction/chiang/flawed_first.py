"""The flawed solution of FIRST of Chiang & Cholak 2022, section 5.2: one layer, whose answer the other positions of a
long string outweigh.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.reproduction.chiang.encoders import flawed_first
from attnsweep.reproduction.chiang.exact import answers, logits
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import share_row, value_row
from attnsweep.workloads.formal_languages.encoder import Encoder

LIMITS = (10.5, 100.5)
"""The values of e^c for the strengths c: the longest string that must be right has this length."""
LENGTHS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
N_STRINGS = 1000
_SCALED = "log_n_inv_sqrt_d"


def reproduce(
    directory: Path,
    console: Console,
    limits: Sequence[float] = LIMITS,
    lengths: Sequence[int] = LENGTHS,
    n_strings: int = N_STRINGS,
) -> Comparison:
    """Computes the one-layer transformer's answers to its hardest strings and to random ones, for each value of e^c."""
    console.print(f"answering strings by the flawed transformer, up to length {lengths[-1]:,}")
    rows: list[ComparedValue] = []
    accuracies: dict[str, list[float]] = {}
    for limit in limits:
        name = f"e^c = {limit:g}"
        encoder = flawed_first(math.log(limit))
        accuracies[name] = [answers(encoder, "first", length, n_strings).accuracy for length in lengths]
        longest, expected = _longest_right(encoder, math.ceil(2 * limit)), math.ceil(limit) - 1
        right = "longest length at which 10...0 and 01...1 are right"
        rows += [
            value_row(f"{name}: {right}", longest, f"{expected} (n - 1 < e^c)", agrees=longest == expected),
            _accuracy_row(f"{name}: accuracy at {lengths[-1]:,}", accuracies[name][-1], n_strings, "below 1"),
        ]
    scaled = flawed_first(1.0, _SCALED)
    accuracies["c = 1, logits times log n"] = [
        answers(scaled, "first", length, n_strings).accuracy for length in lengths
    ]
    are_right = [_hardest_are_right(scaled, length) for length in lengths]
    name = f"c = 1, logits times log n: lengths of {len(lengths)} at which 10...0 and 01...1 are right"
    rows.append(value_row(name, sum(are_right), len(lengths), agrees=all(are_right)))
    return Comparison(
        title="chiang-flawed-first: FIRST by one layer that fails on long strings",
        source="Chiang & Cholak 2022, section 5.2",
        rows=rows,
        figures=save_figure(_figure(lengths, accuracies), directory, "chiang-flawed-first"),
        notes=[
            "Nothing is trained here: no sweep. CLS gives position 1 the weight e^c and each other position 1; "
            "each symbol votes for itself. n counts CLS too: a string of length n - 1 has n positions.",
            "The hardest strings are those whose other symbols all contradict the first. Random strings fail later: "
            "their other symbols nearly cancel, and sqrt(n) of them are left over.",
            f"{n_strings:,} random strings of each length; shares have Wilson's 95% interval.",
            "With log n the weight is n^c. The paper proposes this for another solution (Proposition 3); it mends this "
            "one too.",
        ],
    )


def _accuracy_row(name: str, accuracy: float, n_strings: int, published: str) -> ComparedValue:
    n_right = round(accuracy * n_strings)
    return share_row(name, n_right, n_strings, published=published, agrees_within=(0.0, math.nextafter(1.0, 0.0)))


def _longest_right(encoder: Encoder, at_most: int) -> int:
    """Returns the largest length up to which the answers to the hardest strings of every length are right."""
    wrong = (length for length in range(1, at_most + 1) if not _hardest_are_right(encoder, length))
    return next(wrong, at_most + 1) - 1


def _hardest_are_right(encoder: Encoder, length: int) -> bool:
    first_BN = torch.zeros(2, length, dtype=torch.bool)
    first_BN[0, 0] = first_BN[1, 1:] = True
    logit_B = logits(encoder, "first", first_BN, "kinds")
    return bool(logit_B[0] > 0 > logit_B[1])


def _figure(lengths: Sequence[int], accuracies: dict[str, list[float]]) -> Figure:
    figure = Figure(figsize=(4.4, 2.9), layout="constrained", dpi=200)
    panel = figure.subplots()
    panel.axhline(0.5, color="0.55", linewidth=0.8, linestyle=(0, (2, 2)))
    for (name, values), colour in zip(accuracies.items(), ("#D55E00", "#009E73", "#0072B2"), strict=False):
        panel.plot(lengths, values, color=colour, marker="o", markersize=3, linewidth=1.2, label=name)
    framed(panel, xscale="log", xlabel="length of the string", ylabel="accuracy")
    panel.legend(frameon=False, fontsize=7)
    return figure
