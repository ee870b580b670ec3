"""Figure 4 of Chiang & Cholak 2022: the language FIRST, learned from strings of one length and tested at length 1,000.
With the same set-up PARITY, of which the paper reports that it is never learned.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import (
    ABOVE_ZERO,
    Bounds,
    Claim,
    bounded_difference_row,
    bounded_mean_intervals,
    bounded_mean_row,
    share_row,
)
from attnsweep.reproduction.trained import queried

STEPS_PER_EPOCH = 100
"""The number of steps per epoch in the paper. The epochs of a sweep here only set how often it measures."""
SCALES = {
    "inv_sqrt_d": "unscaled",
    "log_n_inv_sqrt_d": r"logits $\times\,\log n$ (eq. 2)",
    "log_n_query_inv_sqrt_d": r"query input $\times\,\log n$",
}
"""The titles of the figure's columns, by `attention_scale`."""
_COLOURS = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#595959")
"""The colours of the curves by increasing training length, from Okabe & Ito 2008."""

_CURVES = """
select param_attention_scale, param_train_length, metric, step, list(value order by trial, replicate)
from curves join trainings using (training_id, trial, replicate)
where list_contains(?, metric) group by all order by all
"""
_LENGTH = "select any_value(coalesce(param_longest_test_length, 1000)) from trainings"


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration of the sweep behind the figure: an attention scale and a training length."""

    attention_scale: str
    train_length: int

    @property
    def is_scaled(self) -> bool:
        """Whether the attention logits of this configuration are multiplied by the logarithm of the number of
        tokens.
        """
        return self.attention_scale != "inv_sqrt_d"


@dataclass(frozen=True, slots=True)
class Curve:
    """The values of one metric by epoch, for all seeds of one configuration (`Cell`).

    Attributes:
        epochs: The epochs of the probes as the paper counts them, (n_probes,).
        values: A sample for each probe, with one value for each seed that was still training.
    """

    epochs: NDArray[np.float64]
    values: Sequence[NDArray[np.float64]]

    @property
    def final(self) -> list[float]:
        """The values of the curve's metric at the last epoch, one for each seed that was still training."""
        return [float(value) for value in self.values[-1]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One row of plots in the figure: it shows one metric, with a plot for each attention scale.

    Attributes:
        metric, label: The metric that it shows, and the label of its axis.
        chance: The value that guessing reaches, if it is known.
        limits: The limits of the axis.
        ends: The lowest and the highest possible value; for a metric without a highest value, 0 and the highest value
            of any training.
    """

    metric: str
    label: str
    chance: float | None = None
    limits: Bounds | None = None
    ends: Bounds | None = None


Curves = Mapping[tuple[Cell, str], Curve]


def longest_test_length(sweep: SweepDirectory) -> int:
    [(length,)] = queried(sweep, _LENGTH)
    return int(length)


def read_curves(sweep: SweepDirectory, metrics: Sequence[str]) -> Curves:
    """Reads the metrics of a finished sweep by epoch, for each configuration, sorted by attention scale and training
    length.
    """
    points: dict[tuple[Cell, str], list[tuple[int, list[float]]]] = {}
    for scale, length, metric, step, values in queried(sweep, _CURVES, list(metrics)):
        points.setdefault((Cell(scale, length), metric), []).append((step, values))
    return {
        key: Curve(np.array([step for step, _ in curve]) / STEPS_PER_EPOCH, [np.array(values) for _, values in curve])
        for key, curve in points.items()
    }


def cells_of(curves: Curves) -> list[Cell]:
    """Returns the configurations (attention scale and training length) for which there are learning curves. They are
    sorted by attention scale, in the order of the columns of figure 4, and then by training length."""
    order = list(SCALES)
    return sorted({cell for cell, _ in curves}, key=lambda cell: (order.index(cell.attention_scale), cell.train_length))


def from_zero(curves: Curves, metric: str) -> Bounds:
    """Returns the limits of a plot's axis for the metric named `metric`: 0, and its highest value in any training at
    any time.
    """
    return 0.0, max(
        float(values.max()) for (_, name), curve in curves.items() if name == metric for values in curve.values
    )


def draw_curves(curves: Curves, panels: Sequence[Panel]) -> Figure:
    """Draws the mean of each metric over seeds, with 95% intervals, against the epoch. A row of plots shows one metric,
    a column one attention scale, and a colour one training length.
    """
    cells = cells_of(curves)
    scales = list(dict.fromkeys(cell.attention_scale for cell in cells))
    lengths = sorted({cell.train_length for cell in cells})
    colours = dict(zip(lengths, _COLOURS, strict=False))
    size = (0.6 + 2.6 * len(scales), 0.9 + 1.65 * len(panels))
    figure = Figure(figsize=size, layout="constrained", dpi=200)
    axes = figure.subplots(len(panels), len(scales), sharex=True, sharey="row", squeeze=False)
    for row, panel in zip(axes, panels, strict=True):
        row[0].set_ylabel(panel.label, fontsize=8)
        for place, scale in zip(row, scales, strict=True):
            frame(place, panel.chance)
            if panel.limits is not None:
                place.set_ylim(*panel.limits)
            for cell in cells:
                if cell.attention_scale == scale:
                    ends = panel.ends or from_zero(curves, panel.metric)
                    _draw(place, curves[cell, panel.metric], colours[cell.train_length], ends)
    for place, scale in zip(axes[0], scales, strict=True):
        place.set_title(SCALES[scale], fontsize=9)
    for place in axes[-1]:
        place.set_xlabel("epochs (100 strings each)", fontsize=8)
    handles = axes[0][0].get_lines()[-len(lengths) :] if lengths else []
    figure.legend(
        handles,
        [f"{length}" for length in lengths],
        loc="outside lower center",
        ncols=len(lengths),
        frameon=False,
        fontsize=8,
        title="length of the training strings; mean over seeds and 95% interval",
        title_fontsize=8,
    )
    return figure


def frame(place: Axes, chance: float | None = None) -> None:
    """Draws the grid and ticks of a plot, and a dashed line at the value that random guessing reaches, if it is
    known.
    """
    if chance is not None:
        place.axhline(chance, color="0.55", linewidth=0.8, linestyle=(0, (2, 2)))
    place.grid(color="0.93", linewidth=0.6)
    place.set_axisbelow(True)
    place.spines[["top", "right"]].set_visible(False)
    place.tick_params(labelsize=7)


def _draw(place: Axes, curve: Curve, colour: str, ends: Bounds) -> None:
    bands = [bounded_mean_intervals(values[None], ends) for values in curve.values]
    mean, low, high = np.concatenate(bands, axis=1)
    place.fill_between(curve.epochs, low, high, color=colour, alpha=0.2, linewidth=0)
    place.plot(curve.epochs, mean, color=colour, linewidth=1.2)


NEAR_CHANCE = (0.4, 0.6)
"""The range of mean accuracies that count as hardly better than guessing."""
NEARLY_ALL = 0.95
"""The lower end of the 95% interval of a share if all of 100 seeds have the property in question."""
NEAR_ZERO_BITS = 0.05
"""A cross-entropy below this number of bits counts as about 0."""
ACCURACIES = (0.0, 1.0)
_WHAT_IS_SCALED = {
    "log_n_query_inv_sqrt_d": "Scaled: log n multiplies the layer's input before its projection to queries, and so not "
    "the queries' bias, as in the authors' code. With the paper's equation 2: chiang-fig4-logits.",
    "log_n_inv_sqrt_d": "Scaled: log n multiplies the logits, as in the paper's equation 2. The authors' code, and "
    "chiang-fig4, multiply the layer's input before its projection to queries, and so not the queries' bias.",
}


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Draws the metrics of a finished sweep by epoch, and compares their values at the last epoch with the paper's
    claims.
    """
    name = sweep.spec.name.replace("_", "-")
    length = longest_test_length(sweep)
    bits, accuracy, attention = f"cross_entropy_{length}", f"accuracy_{length}", f"first_attention_{length}"
    curves = read_curves(sweep, (bits, accuracy, attention, "eval_loss"))
    panels = (
        Panel(metric=bits, label=f"cross-entropy at {length}\n(bits)", chance=1.0),
        _accuracy_panel(accuracy, f"accuracy at {length}"),
        Panel(metric=attention, label="CLS's attention to\nposition 1, both layers"),
    )
    n_epochs = max(curve.epochs[-1] for curve in curves.values())
    return Comparison(
        title=f"{name}: FIRST learned for {n_epochs:g} epochs, tested at length {length}",
        source="Chiang & Cholak 2022, section 5.3, Figure 4",
        rows=[
            *itertools.chain.from_iterable(_cell_rows(cell, curves, bits, accuracy) for cell in cells_of(curves)),
            *_claims(curves, bits, accuracy),
        ],
        figures=save_figure(draw_curves(curves, panels), directory, name),
        notes=[
            *(
                words
                for scale, words in _WHAT_IS_SCALED.items()
                if any(c.attention_scale == scale for c in cells_of(curves))
            ),
            "Each training draws new test strings at every epoch shown, as in the authors' code.",
            f"An epoch is {STEPS_PER_EPOCH} steps of one string. The paper does not say how many epochs Figure 4 "
            "shows; the default of the authors' script is 100.",
            f"Read as: 'near chance', a mean accuracy within {NEAR_CHANCE[0]:g}..{NEAR_CHANCE[1]:g}; '~0', below "
            f"{NEAR_ZERO_BITS:g} bits; 'all', a share above {NEARLY_ALL:g}; 'not perfect', at least one seed "
            "that errs. A claim agrees if its whole 95% interval does.",
            "Shares have Wilson's interval. Means have that of a bootstrap in which one more seed could have the worst "
            "or the best possible value; the worst cross-entropy is taken to be the highest of any training here.",
        ],
    )


def _accuracy_panel(metric: str, label: str) -> Panel:
    return Panel(metric=metric, label=label, chance=0.5, limits=(0.35, 1.02), ends=ACCURACIES)


def _cell_rows(cell: Cell, curves: Curves, bits: str, accuracy: str) -> list[ComparedValue]:
    right, name = curves[cell, accuracy].final, _name(cell)
    return [
        _perfect_row(cell, right),
        bounded_mean_row(f"{name}: accuracy, mean of {len(right)}", right, ACCURACIES),
        bounded_mean_row(f"{name}: bits, mean of {len(right)}", curves[cell, bits].final, from_zero(curves, bits)),
    ]


def _claims(curves: Curves, bits: str, accuracy: str) -> Iterator[ComparedValue]:
    """Compares the metrics at the last epoch with the paper's claims, in the order in which the paper makes them."""
    unscaled, scaled = ([cell for cell in cells_of(curves) if cell.is_scaled == kind] for kind in (False, True))
    right = {cell: curves[cell, accuracy].final for cell in cells_of(curves)}
    for cell in unscaled[:1]:
        claim: Claim = {"published": "near chance", "agrees_within": NEAR_CHANCE}
        yield bounded_mean_row(f"{_name(cell)}: accuracy", right[cell], ACCURACIES, **claim)
    for shorter, longer in itertools.pairwise(unscaled):
        name = f"{_name(longer)} above {shorter.train_length}, accuracy"
        claim = {"published": "longer is better", "agrees_within": ABOVE_ZERO}
        yield bounded_difference_row(name, right[longer], right[shorter], ACCURACIES, **claim)
    for cell in unscaled:
        yield _perfect_row(cell, right[cell], published="not perfect", agrees_within=(0.0, math.nextafter(1.0, 0.0)))
    for cell in scaled:
        name = f"{_name(cell)}: share of seeds below {NEAR_ZERO_BITS:g} bits"
        near = [value < NEAR_ZERO_BITS for value in curves[cell, bits].final]
        yield share_row(name, sum(near), len(near), published="all at ~0", agrees_within=(NEARLY_ALL, 1.0))
    for cell in scaled:
        yield _perfect_row(cell, right[cell], published="all", agrees_within=(NEARLY_ALL, 1.0))


def _perfect_row(cell: Cell, right: list[float], **claim: Unpack[Claim]) -> ComparedValue:
    n_perfect = sum(value == 1.0 for value in right)
    return share_row(f"{_name(cell)}: share of seeds with accuracy 1", n_perfect, len(right), **claim)


def _name(cell: Cell) -> str:
    return f"{'scaled' if cell.is_scaled else 'unscaled'}, n = {cell.train_length}"


CHANCE = NEAR_CHANCE
"""The range of mean accuracies that count as chance."""


def compare_parity(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares the accuracies of a finished sweep on PARITY with that of guessing, and draws the loss and the
    accuracies against the epoch."""
    length = longest_test_length(sweep)
    test_accuracy = f"accuracy_{length}"
    curves = read_curves(sweep, ("eval_loss", "accuracy", test_accuracy))
    panels = (
        Panel(metric="eval_loss", label="cross-entropy at the\ntraining length (bits)", chance=1.0),
        _accuracy_panel("accuracy", "accuracy at the\ntraining length"),
        _accuracy_panel(test_accuracy, f"accuracy at {length}"),
    )
    return Comparison(
        title="chiang-parity: PARITY with the set-up of Figure 4",
        source="Chiang & Cholak 2022, section 3.1",
        rows=[row for cell in cells_of(curves) for row in _parity_rows(cell, curves, test_accuracy, length)],
        figures=save_figure(draw_curves(curves, panels), directory, "chiang-parity"),
        notes=[
            "Positions are encoded as i/n and cos(i pi). Width, learning rate, initialization, strings and epochs are "
            "those of Figure 4.",
            f"'Chance' is read as a mean accuracy within {CHANCE[0]:g}..{CHANCE[1]:g}; the paper gives no numbers.",
            "Half of all strings have odd parity, so an encoder that knows only its own strings guesses at others.",
        ],
    )


def _undecided(row: ComparedValue) -> ComparedValue:
    return replace(row, agrees=None) if not row.agrees and CHANCE[0] <= float(row.ours) <= CHANCE[1] else row


def _parity_rows(cell: Cell, curves: Curves, test_accuracy: str, length: int) -> list[ComparedValue]:
    own, test, name = curves[cell, "accuracy"].final, curves[cell, test_accuracy].final, _name(cell)
    none: Claim = {"published": "none", "agrees_within": (0.0, 0.2)}
    return [
        *(
            _undecided(
                bounded_mean_row(f"{name}: {measure}", values, ACCURACIES, published="chance", agrees_within=CHANCE)
            )
            for measure, values in (("accuracy at that length", own), (f"accuracy at {length}", test))
        ),
        share_row(f"{name}: seeds that learn it", sum(value == 1.0 for value in own), len(own), **none),
    ]
