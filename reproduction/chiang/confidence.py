"""Propositions 2 and 3 of Chiang & Cholak 2022: transformers with any wanted cross-entropy, at every length."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from attnsweep.reproduction.chiang.encoders import exact_first, exact_parity, with_extra_layer
from attnsweep.reproduction.chiang.exact import answers
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import value_row
from attnsweep.workloads.formal_languages.encoder import Encoder

WANTED_BITS = (0.1, 1e-3, 1e-6)
LENGTHS = {"first": (1, 10, 100, 1000, 10_000, 100_000), "parity": (1, 10, 100, 300)}
N_STRINGS = 20
_EXACT: Mapping[str, Callable[[], Encoder]] = {"first": exact_first, "parity": exact_parity}
_LEAST_LOGIT = 0.25
"""The least distance from 0 of the answer of FIRST at any length, with logits times log n, by proposition 3."""
_ROUNDING = 1e-4
"""The relative error that rounding in LayerNorm at epsilon 0 causes."""


def reproduce(
    directory: Path,
    console: Console,
    lengths: Mapping[str, Sequence[int]] = LENGTHS,
    n_strings: int = N_STRINGS,
) -> Comparison:
    """Builds transformers for three target cross-entropies, and measures them on strings of the given lengths."""
    del directory
    console.print("answering random strings by transformers that are as confident as wished")
    return Comparison(
        title="chiang-confidence: cross-entropies as low as wished",
        source="Chiang & Cholak 2022, sections 4.3 and 5.3, Propositions 2 and 3",
        rows=[
            *(
                _extra_layer(language, own, bits, n_strings)
                for language, own in lengths.items()
                for bits in WANTED_BITS
            ),
            *(_scaled(lengths["first"], bits, n_strings) for bits in (None, *WANTED_BITS)),
        ],
        notes=[
            "Nothing is trained here: no sweep. Rows of Proposition 2 have the wanted cross-entropy as published, and "
            "agree if the highest of any string at any length equals it (relative 1e-4) and every answer is right.",
            "Proposition 3: the answer of FIRST is beyond 1/4 on the right side of 0, so it loses at most log2(1 + "
            "e^-1/4) bits; a larger weight of the answer lowers this to what is wished. No LayerNorm.",
            f"{n_strings} random strings at each of the lengths {', '.join(f'{n:,}' for n in lengths['first'])} "
            f"(PARITY: {', '.join(map(str, lengths.get('parity', ())))}).",
        ],
    )


def _extra_layer(language: str, lengths: Sequence[int], bits: float, n_strings: int) -> ComparedValue:
    """Checks proposition 2: with an extra layer that erases all but the answer, LayerNorm (epsilon 0) gives the answer
    a fixed size.
    """
    most, are_right = _most_bits(with_extra_layer(_EXACT[language](), 0.0, bits), language, lengths, n_strings)
    agrees = are_right and math.isclose(most, bits, rel_tol=_ROUNDING)
    return value_row(f"Proposition 2, {language.upper()}: most bits at any length", most, bits, agrees=agrees)


def _scaled(lengths: Sequence[int], bits: float | None, n_strings: int) -> ComparedValue:
    """Checks proposition 3: the cross-entropy of any string is at most `bits`. `None` keeps the answer's weight."""
    encoder = exact_first(1.0, "log_n_inv_sqrt_d")
    at_most = math.log2(1 + math.exp(-_LEAST_LOGIT)) if bits is None else bits
    if bits is not None:
        encoder.answer_weight_D1.data *= -math.log(math.expm1(bits * math.log(2.0))) / _LEAST_LOGIT
    most, are_right = _most_bits(encoder, "first", lengths, n_strings)
    name = f"Proposition 3, FIRST{'' if bits is None else ', answer enlarged'}: most bits at any length"
    return value_row(name, most, f"at most {at_most:.4g}", agrees=are_right and most <= at_most)


def _most_bits(encoder: Encoder, language: str, lengths: Sequence[int], n_strings: int) -> tuple[float, bool]:
    """Returns the largest cross-entropy of any string, in bits, and whether all answers are right."""
    by_length = [answers(encoder, language, length, n_strings) for length in lengths]
    return max(float(own.bits_B.max()) for own in by_length), all(own.accuracy == 1.0 for own in by_length)
