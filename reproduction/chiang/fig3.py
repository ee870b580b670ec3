"""Figure 3 of Chiang & Cholak 2022: exact PARITY when the one weight that counts the 1s is perturbed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.reproduction.chiang.curves import frame
from attnsweep.reproduction.chiang.encoders import exact_parity, with_layer_norm
from attnsweep.reproduction.chiang.exact import Answers, answers
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import share_row, value_row
from attnsweep.workloads.formal_languages.encoder import Encoder

LENGTH = 100
N_STRINGS = 100
WEIGHTS = np.linspace(0.5, 1.5, 401)
_BLUE = "#0072B2"
_SURELY_RIGHT = 0.95
"""The lower end of the 95% interval of the accuracy if all of 100 random strings are answered right."""
_TURN_BITS = 0.5
"""The least turn of the cross-entropy that counts: another draw of strings changes it by less."""


def reproduce(
    directory: Path,
    console: Console,
    length: int = LENGTH,
    weights: NDArray[np.float64] = WEIGHTS,
    n_strings: int = N_STRINGS,
) -> Comparison:
    """Measures exact PARITY (LayerNorm, epsilon 0) for each value of the weight that counts 1s, and for the weight
    1.
    """
    console.print("answering random strings with a counting weight that is off")
    weights = np.union1d(weights, [1.0])
    answers_by_weight = [answers(_parity(float(weight)), "parity", length, n_strings) for weight in weights]
    bits = np.array([own.mean_bits for own in answers_by_weight])
    accuracy = np.array([own.accuracy for own in answers_by_weight])
    centre = int(np.searchsorted(weights, 1.0))
    low, high = _around(weights, accuracy, centre)
    n_right, n_below = int(answers_by_weight[centre].is_right_B.sum()), int((accuracy < 0.5).sum())
    below = "weights at which accuracy is below 1/2"
    return Comparison(
        title=f"chiang-fig3: exact PARITY by its counting weight, n = {length}",
        source="Chiang & Cholak 2022, section 4, Figure 3",
        rows=[
            share_row("weight 1: accuracy", n_right, n_strings, published="1", agrees_within=(_SURELY_RIGHT, 1.0)),
            value_row("weight 1: bits", bits[centre]),
            value_row("accuracy 1 at all weights from, to", f"{low:.4g}, {high:.4g}"),
            _turns_row("bits", bits, _TURN_BITS),
            _turns_row("accuracy", accuracy, 2.0 * _half_interval(n_strings)),
            value_row(below, f"{n_below} of {weights.size}", "oscillates", agrees=n_below > 0),
        ],
        figures=save_figure(_figure(weights, answers_by_weight, length), directory, "chiang-fig3"),
        notes=[
            "Nothing is trained here: no sweep. The weight is W_V of layer 1, head 1 at entry (6, 2), which computes "
            f"k/n; layer norm with epsilon 0, c = 1, {n_strings} random strings, the same at each weight.",
            f"A turn counts if it is larger than {_TURN_BITS:g} bits, or wider than the 95% interval of an accuracy. "
            "At least 10 turns are taken for an oscillation.",
            "The length of the paper's figure is not known to us. At other lengths the picture is the same, narrower "
            "for longer strings: a count is off by one half once the weight is off by about 1/n.",
        ],
    )


def _parity(weight: float) -> Encoder:
    return with_layer_norm(exact_parity(counting=weight), 0.0)


def _half_interval(n_strings: int) -> float:
    return float(1.96 * np.sqrt(0.25 / n_strings))


def _around(weights: NDArray[np.float64], accuracy: NDArray[np.float64], centre: int) -> tuple[float, float]:
    """Returns the smallest and the largest weight around `centre` between which no weight makes an error."""
    wrong = np.flatnonzero(accuracy < 1.0)
    first = wrong[wrong < centre].max(initial=-1) + 1
    last = wrong[wrong > centre].min(initial=weights.size) - 1
    return float(weights[first]), float(weights[last])


def _turns_row(name: str, values: NDArray[np.float64], least: float) -> ComparedValue:
    n_turns = count_turns(values, least)
    return value_row(f"turns of the {name}", float(n_turns), "oscillates rapidly", agrees=n_turns >= 10)


def count_turns(values: Sequence[float] | NDArray[np.float64], least: float) -> int:
    """Counts how often a curve changes between rising and falling, where the change is at least `least`."""
    n_turns, direction, extreme = 0, 0, float(values[0])
    for value in values[1:]:
        if direction == 0:
            if abs(value - extreme) >= least:
                direction, extreme = (1 if value > extreme else -1), float(value)
        elif (value - extreme) * direction >= 0:
            extreme = float(value)
        elif abs(value - extreme) >= least:
            n_turns, direction, extreme = n_turns + 1, -direction, float(value)
    return n_turns


def _figure(weights: NDArray[np.float64], answers_by_weight: Sequence[Answers], length: int) -> Figure:
    figure = Figure(figsize=(5.6, 4.0), layout="constrained", dpi=200)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for panel, values, label, chance in (
        (upper, [own.mean_bits for own in answers_by_weight], "cross-entropy (bits a string)", 1.0),
        (lower, [own.accuracy for own in answers_by_weight], "accuracy", 0.5),
    ):
        frame(panel, chance)
        panel.axvline(1.0, color="#D55E00", linewidth=0.8)
        panel.plot(weights, values, color=_BLUE, linewidth=1.0)
        panel.set_ylabel(label, fontsize=8)
        panel.set_ylim(bottom=0.0)
    lower.set_xlabel(f"weight that counts the 1s (1 is right), strings of length {length}", fontsize=8)
    lower.set_xlim(float(weights[0]), float(weights[-1]))
    return figure
