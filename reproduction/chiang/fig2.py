"""Figure 2 of Chiang & Cholak 2022: cross-entropy of the exact transformers by length of the strings."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.reproduction.chiang.curves import frame
from attnsweep.reproduction.chiang.encoders import exact_first, exact_parity, with_layer_norm
from attnsweep.reproduction.chiang.exact import Answers, answers
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import value_row
from attnsweep.workloads.formal_languages.encoder import Encoder

LENGTHS = {
    "first": (*range(1, 11), *(round(10 ** (1 + step / 15)) for step in range(1, 31))),
    "parity": (1, 2, 3, 5, 7, 10, 14, 20, 30, 50, 70, 100, 140, 200, 300, 500, 700, 1000),
}
N_STRINGS = 1000
N_AUTHORS_STRINGS = 100
"""The number of strings behind the values that the authors print."""
_EXACT: Mapping[str, Callable[[], Encoder]] = {"first": exact_first, "parity": exact_parity}


@dataclass(frozen=True, slots=True)
class _Form:
    name: str
    layer_norm_eps: float | None
    colour: str
    line: str


_FORMS = (
    _Form("no layer norm", None, "#D55E00", "-"),
    _Form(r"layer norm, $\varepsilon = 10^{-5}$", 1e-5, "#009E73", "-"),
    _Form(r"layer norm, $\varepsilon = 0$", 0.0, "#0072B2", "-"),
)
_NONE, _SMALL, _ZERO = _FORMS
Found = Mapping[tuple[str, _Form], Sequence[Answers]]


def reproduce(
    directory: Path,
    console: Console,
    lengths: Mapping[str, Sequence[int]] = LENGTHS,
    n_strings: int = N_STRINGS,
) -> Comparison:
    """Computes the answers of the exact transformers to `n_strings` random strings of each of many lengths."""
    console.print("answering random strings by the exact transformers, up to length 1,000")
    answers_by_form = {
        (language, form): [
            answers(_encoder(language, form), language, length, n_strings) for length in lengths[language]
        ]
        for language in lengths
        for form in _FORMS
    }
    return Comparison(
        title="chiang-fig2: cross-entropy of the exact transformers by length",
        source="Chiang & Cholak 2022, section 4, Figure 2",
        rows=[
            *(row for language in lengths for row in _claims(language, lengths[language], answers_by_form)),
            *_authors_code(n_strings),
        ],
        figures=save_figure(_figure(lengths, answers_by_form), directory, "chiang-fig2"),
        notes=[
            "Nothing is trained here: no sweep. c = 1 (the query is c sqrt(d) at CLS); n is the length of the string.",
            f"{n_strings:,} random strings of each length. Intervals are of the mean over strings.",
            "The authors' code does not multiply the query by sqrt(d). Its c = 1 is our c = 1/sqrt(6) without layer "
            "norm and 1/sqrt(12) with it, where vectors are twice as wide. It prints means over 100 strings.",
        ],
    )


def _encoder(language: str, form: _Form) -> Encoder:
    plain = _EXACT[language]()
    return plain if form.layer_norm_eps is None else with_layer_norm(plain, form.layer_norm_eps)


def _claims(language: str, lengths: Sequence[int], answers_by_form: Found) -> list[ComparedValue]:
    short, long = lengths[0], lengths[-1]
    name = language.upper()
    none, small, zero = (answers_by_form[language, form] for form in _FORMS)
    accuracy = min(own.accuracy for form in _FORMS for own in answers_by_form[language, form])
    bits = [own.mean_bits for own in zero]
    spread = max(bits) - min(bits)
    small_bits, better = small[0].mean_bits, f"better, grows (n = {short}: {small[0].mean_bits:.4f})"
    return [
        _bits_row(f"{name}, no LN: bits at n = {long}", none[-1], "goes to 1", above=0.99),
        _bits_row(
            f"{name}, LN 1e-5: bits at n = {long}", small[-1], better, above=small_bits, below=none[-1].mean_bits
        ),
        _bits_row(f"{name}, LN 0: bits at n = {long}", zero[-1], None),
        value_row(f"{name}, LN 0: largest less smallest, bits", spread, "flat", agrees=spread < 1e-6),
        value_row(f"{name}: lowest accuracy at any n", accuracy, 1.0, agrees=accuracy == 1.0),
    ]


def _authors_code(n_strings: int) -> list[ComparedValue]:
    plain = answers(exact_first(6**-0.5), "first", 100, n_strings)
    normalized = answers(with_layer_norm(exact_first(12**-0.5), 1e-5), "first", 100, n_strings)
    return [
        _value_row("FIRST, no LN, n = 100: bits", plain, 0.9947, n_strings),
        _value_row("FIRST, LN 1e-5, n = 100: bits", normalized, 0.1360, n_strings),
    ]


def _value_row(name: str, own: Answers, published: float, n_strings: int) -> ComparedValue:
    """Returns a row with our and the published mean; they agree if they differ by no more than their sampling error and
    rounding allow.
    """
    their_error = own.standard_error_bits * (n_strings / N_AUTHORS_STRINGS) ** 0.5
    largest = 1.96 * math.hypot(own.standard_error_bits, their_error) + 5e-5
    row = _bits_row(name, own, published)
    return dataclasses.replace(row, agrees=abs(own.mean_bits - published) <= largest)


def _bits_row(
    name: str, own: Answers, published: float | str | None, above: float | None = None, below: float = np.inf
) -> ComparedValue:
    half = 1.96 * own.standard_error_bits
    low, high = own.mean_bits - half, own.mean_bits + half
    agrees = None if above is None else bool(low > above and high < below)
    return ComparedValue(name=name, published=published, ours=own.mean_bits, low=low, high=high, agrees=agrees)


def _figure(lengths: Mapping[str, Sequence[int]], answers_by_form: Found) -> Figure:
    figure = Figure(figsize=(3.0 * len(lengths) + 0.4, 2.9), layout="constrained", dpi=200)
    panels = figure.subplots(1, len(lengths), sharey=True, squeeze=False)[0]
    for panel, (language, own_lengths) in zip(panels, lengths.items(), strict=True):
        frame(panel, 1.0)
        for form in _FORMS:
            bits = [own.mean_bits for own in answers_by_form[language, form]]
            panel.plot(
                own_lengths,
                bits,
                form.line,
                color=form.colour,
                linewidth=1.4,
                marker="o",
                markersize=2,
                label=form.name,
            )
        panel.set_xscale("log")
        panel.set_title(language.upper(), fontsize=9)
        panel.set_xlabel("length $n$ of the strings", fontsize=8)
        panel.set_ylim(0.0, 1.05)
    panels[0].set_ylabel("cross-entropy (bits a string)", fontsize=8)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(_FORMS), frameon=False, fontsize=8)
    return figure
