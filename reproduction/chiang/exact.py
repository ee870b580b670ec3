"""Chiang & Cholak 2022 on encoders with weights set by hand: figures 2 and 3, the flawed solution of FIRST (section
5.2), and propositions 2 and 3. Nothing is trained.

Axes: B string, N position in a string.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor
from torch.nn.functional import softplus

from attnsweep.reproduction.chiang.encoders import (
    exact_first,
    exact_parity,
    flawed_first,
    with_extra_layer,
    with_layer_norm,
)
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure, value_row
from attnsweep.reproduction.figures import Curve, Panel, draw_curves
from attnsweep.reproduction.rows import estimate_row
from attnsweep.workloads.formal_languages.encoder import Encoder
from attnsweep.workloads.formal_languages.language import Tokens, tokenize
from attnsweep.workloads.formal_languages.languages import LANGUAGES

Lengths = Mapping[str, Sequence[int]]
"""Lengths of strings by language."""
_ROOM = 4_000_000
"""The most attention logits in memory."""
_EXACT: Mapping[str, Callable[[], Encoder]] = {"first": exact_first, "parity": exact_parity}
_NO_SWEEP = "Nothing is trained here: no sweep."


@dataclass(frozen=True, slots=True)
class Answers:
    """To random strings of one length: the cross-entropy of each, and whether it is right."""

    bits_B: Tensor
    is_right_B: Tensor

    @property
    def mean_bits(self) -> float:
        return float(self.bits_B.mean())

    @property
    def standard_error_bits(self) -> float:
        return float(self.bits_B.std(correction=1)) / math.sqrt(self.bits_B.shape[0])

    @property
    def accuracy(self) -> float:
        return float(self.is_right_B.double().mean())


def answers(encoder: Encoder, language: str, length: int, n_strings: int) -> Answers:
    """In float64. The strings are uniformly random and depend on the length only."""
    spec = LANGUAGES[language]
    representation = "positions" if spec.n_marked_positions is None else "kinds"
    text_BN = torch.rand(n_strings, length, generator=torch.Generator().manual_seed(length)) < 0.5
    n_logits = encoder.shape.n_heads * ((length + 1) ** 2 if representation == "positions" else 16)
    logit_B = torch.cat(
        [_logits(encoder, language, part, representation) for part in torch.split(text_BN, max(_ROOM // n_logits, 1))]
    )
    is_in_B = spec.contains(text_BN, torch.full((n_strings,), length))
    signed_B = torch.where(is_in_B, logit_B, -logit_B)
    return Answers(bits_B=softplus(-signed_B) / math.log(2.0), is_right_B=signed_B > 0)


def _logits(encoder: Encoder, language: str, text_BN: Tensor, representation: str) -> Tensor:
    length_B = torch.full(text_BN.shape[:1], text_BN.shape[1])
    tokens = tokenize(LANGUAGES[language], text_BN, length_B, representation)
    with torch.no_grad():
        logit_B: Tensor = encoder(Tokens(tokens.feature_BTF, tokens.log_count_BT, tokens.log_n[0]))
    return logit_B


FIG2_LENGTHS: Lengths = {
    "first": (*range(1, 11), *(round(10 ** (1 + step / 15)) for step in range(1, 31))),
    "parity": (1, 2, 3, 5, 7, 10, 14, 20, 30, 50, 70, 100, 140, 200, 300, 500, 700, 1000),
}
_AUTHORS_STRINGS = 100
"""Behind the values that the authors print."""
_FORMS = {"no layer norm": None, "layer norm, epsilon = 1e-5": 1e-5, "layer norm, epsilon = 0": 0.0}


def reproduce_fig2(
    directory: Path, console: Console, lengths: Lengths = FIG2_LENGTHS, n_strings: int = 1000
) -> Comparison:
    """The cross-entropy by length, without LayerNorm and with two epsilons."""
    console.print("answering random strings by the exact transformers, up to length 1,000")
    found: dict[str, list[list[Answers]]] = {}
    for language in lengths:
        plain = _EXACT[language]()
        encoders = [plain if eps is None else with_layer_norm(plain, eps) for eps in _FORMS.values()]
        found[language] = [[answers(each, language, n, n_strings) for n in lengths[language]] for each in encoders]
    panels = [
        Panel(
            curves=[
                Curve(form, own, [each.mean_bits for each in by_length])
                for form, by_length in zip(_FORMS, found[language], strict=True)
            ],
            heights={"chance": 1.0},
            axes={"title": language.upper(), "xscale": "log", "xlabel": "length n", "ylabel": "bits a string"},
        )
        for language, own in lengths.items()
    ]
    return Comparison(
        title="chiang-fig2: cross-entropy of the exact transformers by length",
        source="Chiang & Cholak 2022, section 4, Figure 2",
        rows=[
            *(row for language in lengths for row in _fig2_claims(language, lengths[language], found[language])),
            _authors_row("FIRST, no LN, n = 100: bits", exact_first(6**-0.5), 0.9947, n_strings),
            _authors_row(
                "FIRST, LN 1e-5, n = 100: bits", with_layer_norm(exact_first(12**-0.5), 1e-5), 0.1360, n_strings
            ),
        ],
        figures=save_figure(draw_curves([panels]), directory, "chiang-fig2"),
        notes=[
            f"{_NO_SWEEP} c = 1 (the query is c sqrt(d) at CLS); n is the length of the string.",
            f"{n_strings:,} random strings of each length. Intervals are of the mean over strings.",
            "The authors' code does not multiply the query by sqrt(d). Its c = 1 is our c = 1/sqrt(6) without layer "
            "norm and 1/sqrt(12) with it, where vectors are twice as wide. It prints means over 100 strings.",
        ],
    )


def _fig2_claims(language: str, lengths: Sequence[int], by_form: Sequence[Sequence[Answers]]) -> list[ComparedValue]:
    short, long, name = lengths[0], lengths[-1], language.upper()
    none, small, zero = by_form
    accuracy = min(own.accuracy for form in by_form for own in form)
    bits = [own.mean_bits for own in zero]
    spread, first_bits = max(bits) - min(bits), small[0].mean_bits
    better = f"better, grows (n = {short}: {first_bits:.4f})"
    return [
        _bits_row(f"{name}, no LN: bits at n = {long}", none[-1], "goes to 1", above=0.99),
        _bits_row(
            f"{name}, LN 1e-5: bits at n = {long}", small[-1], better, above=first_bits, below=none[-1].mean_bits
        ),
        _bits_row(f"{name}, LN 0: bits at n = {long}", zero[-1], None),
        value_row(f"{name}, LN 0: largest less smallest, bits", spread, "flat", agrees=spread < 1e-6),
        value_row(f"{name}: lowest accuracy at any n", accuracy, 1.0, agrees=accuracy == 1.0),
    ]


def _authors_row(name: str, encoder: Encoder, published: float, n_strings: int) -> ComparedValue:
    own = answers(encoder, "first", 100, n_strings)
    their_error = own.standard_error_bits * (n_strings / _AUTHORS_STRINGS) ** 0.5
    allowed = 1.96 * math.hypot(own.standard_error_bits, their_error) + 5e-5  # half of the last printed digit
    return dataclasses.replace(_bits_row(name, own, published), agrees=abs(own.mean_bits - published) <= allowed)


def _bits_row(
    name: str, own: Answers, published: float | str | None, above: float | None = None, below: float = np.inf
) -> ComparedValue:
    half = 1.96 * own.standard_error_bits
    low, high = own.mean_bits - half, own.mean_bits + half
    agrees = None if above is None else bool(low > above and high < below)
    return ComparedValue(name=name, published=published, ours=own.mean_bits, low=low, high=high, agrees=agrees)


FIG3_WEIGHTS = np.linspace(0.5, 1.5, 401)
_SURELY_RIGHT = 0.95
"""The lower end of the 95% interval of the accuracy if 100 random strings are all answered right."""
_TURN_BITS = 0.5
"""The smallest movement of the curve that counts as a turn: another draw of strings changes it by less."""


def reproduce_fig3(
    directory: Path,
    console: Console,
    length: int = 100,
    weights: NDArray[np.float64] = FIG3_WEIGHTS,
    n_strings: int = 100,
) -> Comparison:
    """How the encoder of PARITY fails if the weight with which it counts 1s is not exactly 1."""
    console.print("answering random strings with a counting weight that is off")
    weights = np.union1d(weights, [1.0])
    encoders = (with_layer_norm(exact_parity(counting=float(weight)), 0.0) for weight in weights)
    by_weight = [answers(encoder, "parity", length, n_strings) for encoder in encoders]
    bits, accuracy = (np.array([getattr(own, name) for own in by_weight]) for name in ("mean_bits", "accuracy"))
    centre = int(np.searchsorted(weights, 1.0))
    wrong = np.flatnonzero(accuracy < 1.0)
    first, last = wrong[wrong < centre].max(initial=-1) + 1, wrong[wrong > centre].min(initial=weights.size) - 1
    right, n_below = by_weight[centre].is_right_B.tolist(), int((accuracy < 0.5).sum())
    xlabel = f"weight that counts the 1s (1 is right), n = {length}"
    panels = [
        Panel(
            curves=[Curve("all strings", weights, values)],
            heights={"chance": chance},
            axes={"ylabel": label, "xlabel": xlabel},
        )
        for values, label, chance in ((bits, "cross-entropy (bits a string)", 1.0), (accuracy, "accuracy", 0.5))
    ]
    return Comparison(
        title=f"chiang-fig3: exact PARITY by its counting weight, n = {length}",
        source="Chiang & Cholak 2022, section 4, Figure 3",
        rows=[
            estimate_row(
                "weight 1: accuracy", "share", {"sample": right, "published": "1", "within": (_SURELY_RIGHT, 1.0)}
            ),
            value_row("weight 1: bits", bits[centre]),
            value_row("accuracy 1 at all weights from, to", f"{weights[first]:.4g}, {weights[last]:.4g}"),
            _turns_row("bits", bits, _TURN_BITS),
            _turns_row("accuracy", accuracy, 2.0 * 1.96 * math.sqrt(0.25 / n_strings)),
            value_row(
                "weights at which accuracy is below 1/2",
                f"{n_below} of {weights.size}",
                "oscillates",
                agrees=n_below > 0,
            ),
        ],
        figures=save_figure(draw_curves([[panel] for panel in panels]), directory, "chiang-fig3"),
        notes=[
            f"{_NO_SWEEP} The weight is W_V of layer 1, head 1 at entry (6, 2), which computes "
            f"k/n; layer norm with epsilon 0, c = 1, {n_strings} random strings, the same at each weight.",
            f"A turn counts if it is larger than {_TURN_BITS:g} bits, or wider than the 95% interval of an accuracy. "
            "At least 10 turns are taken for an oscillation.",
            "The length of the paper's figure is not known to us. At other lengths the picture is the same, narrower "
            "for longer strings: a count is off by one half once the weight is off by about 1/n.",
        ],
    )


def _turns_row(name: str, values: NDArray[np.float64], smallest: float) -> ComparedValue:
    n_turns = count_turns(values, smallest)
    return value_row(f"turns of the {name}", float(n_turns), "oscillates rapidly", agrees=n_turns >= 10)


def count_turns(values: Sequence[float] | NDArray[np.float64], smallest: float) -> int:
    """From rising to falling or back, without movements smaller than `smallest`."""
    n_turns, direction, extreme = 0, 0, float(values[0])
    for value in values[1:]:
        if direction == 0:
            if abs(value - extreme) >= smallest:
                direction, extreme = (1 if value > extreme else -1), float(value)
        elif (value - extreme) * direction >= 0:
            extreme = float(value)
        elif abs(value - extreme) >= smallest:
            n_turns, direction, extreme = n_turns + 1, -direction, float(value)
    return n_turns


FLAWED_LIMITS = (10.5, 100.5)
"""Values of e^c: the one-layer encoder must be right at lengths up to them."""
FLAWED_LENGTHS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)


def reproduce_flawed_first(
    directory: Path,
    console: Console,
    limits: Sequence[float] = FLAWED_LIMITS,
    lengths: Sequence[int] = FLAWED_LENGTHS,
    n_strings: int = 1000,
) -> Comparison:
    """The one-layer encoder for FIRST on random strings, and on those that are hardest for it."""
    console.print(f"answering strings by the flawed transformer, up to length {lengths[-1]:,}")
    rows: list[ComparedValue] = []
    curves: list[Curve] = []
    for limit in limits:
        name, encoder = f"e^c = {limit:g}", flawed_first(math.log(limit))
        by_length = [answers(encoder, "first", length, n_strings) for length in lengths]
        curves.append(Curve(name, lengths, [each.accuracy for each in by_length]))
        lengths_of_all = range(1, math.ceil(2 * limit) + 1)
        first_wrong = next((n for n in lengths_of_all if not _hardest_are_right(encoder, n)), lengths_of_all.stop)
        longest, expected = first_wrong - 1, math.ceil(limit) - 1
        right = f"{name}: longest length at which 10...0 and 01...1 are right"
        claim = {"sample": by_length[-1].is_right_B.tolist(), "published": "below 1", "below": 1}
        rows += [
            value_row(right, longest, f"{expected} (n - 1 < e^c)", agrees=longest == expected),
            estimate_row(f"{name}: accuracy at {lengths[-1]:,}", "share", claim),
        ]
    scaled, name = flawed_first(1.0, "log_n_inv_sqrt_d"), "c = 1, logits times log n"
    curves.append(Curve(name, lengths, [answers(scaled, "first", length, n_strings).accuracy for length in lengths]))
    are_right = [_hardest_are_right(scaled, length) for length in lengths]
    name += f": lengths of {len(lengths)} at which 10...0 and 01...1 are right"
    rows.append(value_row(name, sum(are_right), len(lengths), agrees=all(are_right)))
    axes = {"xscale": "log", "xlabel": "length of the string", "ylabel": "accuracy"}
    panel = Panel(curves=curves, heights={"chance": 0.5}, axes=axes)
    return Comparison(
        title="chiang-flawed-first: FIRST by one layer that fails on long strings",
        source="Chiang & Cholak 2022, section 5.2",
        rows=rows,
        figures=save_figure(draw_curves([[panel]]), directory, "chiang-flawed-first"),
        notes=[
            f"{_NO_SWEEP} CLS gives position 1 the weight e^c and each other position 1; "
            "each symbol votes for itself. n counts CLS too: a string of length n - 1 has n positions.",
            "The hardest strings are those whose other symbols all contradict the first. Random strings fail later: "
            "their other symbols nearly cancel, and sqrt(n) of them are left over.",
            f"{n_strings:,} random strings of each length; shares have Wilson's 95% interval.",
            "With log n the weight is n^c. The paper proposes this for another solution (Proposition 3); it mends this "
            "one too.",
        ],
    )


def _hardest_are_right(encoder: Encoder, length: int) -> bool:
    first_BN = torch.zeros(2, length, dtype=torch.bool)
    first_BN[0, 0] = first_BN[1, 1:] = True
    logit_B = _logits(encoder, "first", first_BN, "kinds")
    return bool(logit_B[0] > 0 > logit_B[1])


WANTED_BITS = (0.1, 1e-3, 1e-6)
CONFIDENCE_LENGTHS: Lengths = {"first": (1, 10, 100, 1000, 10_000, 100_000), "parity": (1, 10, 100, 300)}
_SMALLEST_LOGIT = 0.25
"""By proposition 3, the answer to FIRST stays at least this far from 0 at any length if logits are multiplied by log
n."""
_ROUNDING = 1e-4
"""A relative error, caused by LayerNorm at epsilon 0."""


def reproduce_confidence(
    directory: Path, console: Console, lengths: Lengths = CONFIDENCE_LENGTHS, n_strings: int = 20
) -> Comparison:
    """Encoders of any wanted cross-entropy."""
    del directory
    console.print("answering random strings by transformers that are as confident as wished")
    return Comparison(
        title="chiang-confidence: cross-entropies as low as wished",
        source="Chiang & Cholak 2022, sections 4.3 and 5.3, Propositions 2 and 3",
        rows=[*_proposition_2(lengths, n_strings), *_proposition_3(lengths["first"], n_strings)],
        notes=[
            f"{_NO_SWEEP} Rows of Proposition 2 have the wanted cross-entropy as published, and "
            "agree if the highest of any string at any length equals it (relative 1e-4) and every answer is right.",
            "Proposition 3: the answer of FIRST is beyond 1/4 on the right side of 0, so it loses at most log2(1 + "
            "e^-1/4) bits; a larger weight of the answer lowers this to what is wished. No LayerNorm.",
            f"{n_strings} random strings at each of the lengths {', '.join(f'{n:,}' for n in lengths['first'])} "
            f"(PARITY: {', '.join(map(str, lengths.get('parity', ())))}).",
        ],
    )


def _proposition_2(lengths: Lengths, n_strings: int) -> Iterator[ComparedValue]:
    """An extra layer erases all but the answer, so that LayerNorm gives the answer a fixed size."""
    for language, own in lengths.items():
        for bits in WANTED_BITS:
            highest, are_right = _most_bits(with_extra_layer(_EXACT[language](), 0.0, bits), language, own, n_strings)
            agrees = are_right and math.isclose(highest, bits, rel_tol=_ROUNDING)
            yield value_row(f"Proposition 2, {language.upper()}: most bits at any length", highest, bits, agrees=agrees)


def _proposition_3(lengths: Sequence[int], n_strings: int) -> Iterator[ComparedValue]:
    """With larger output weights of the answer, the cross-entropy of each string is at most what is wanted."""
    for wanted in (None, *WANTED_BITS):
        encoder, at_most = exact_first(1.0, "log_n_inv_sqrt_d"), math.log2(1 + math.exp(-_SMALLEST_LOGIT))
        if wanted is not None:
            at_most = wanted
            encoder.answer_weight_D1.data *= -math.log(math.expm1(wanted * math.log(2.0))) / _SMALLEST_LOGIT
        highest, are_right = _most_bits(encoder, "first", lengths, n_strings)
        name = f"Proposition 3, FIRST{'' if wanted is None else ', answer enlarged'}: most bits at any length"
        yield value_row(name, highest, f"at most {at_most:.4g}", agrees=are_right and highest <= at_most)


def _most_bits(encoder: Encoder, language: str, lengths: Sequence[int], n_strings: int) -> tuple[float, bool]:
    """Of any string, and whether all are right."""
    by_length = [answers(encoder, language, length, n_strings) for length in lengths]
    return max(float(own.bits_B.max()) for own in by_length), all(own.accuracy == 1.0 for own in by_length)
