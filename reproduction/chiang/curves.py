"""Draws curves by epoch of trainings on a formal language: one column per attention scale, one colour per length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.rows import Bounds, bounded_mean_intervals
from attnsweep.reproduction.trained import queried

STEPS_PER_EPOCH = 100
"""The number of steps per epoch in the paper. A sweep's own epochs only set how often it measures."""
SCALES = {
    "inv_sqrt_d": "unscaled",
    "log_n_inv_sqrt_d": r"logits $\times\,\log n$ (eq. 2)",
    "log_n_query_inv_sqrt_d": r"query input $\times\,\log n$",
}
"""The titles of the columns, by `attention_scale`."""
_COLOURS = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#595959")
"""The colours by increasing length, from Okabe & Ito 2008."""

_CURVES = """
select param_attention_scale, param_train_length, metric, step, list(value order by trial, replicate)
from curves join trainings using (training_id, trial, replicate)
where list_contains(?, metric) group by all order by all
"""
_LENGTH = "select any_value(coalesce(param_longest_test_length, 1000)) from trainings"


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration of the sweep: an attention scale and a training length."""

    attention_scale: str
    train_length: int

    @property
    def is_scaled(self) -> bool:
        """Whether the attention scale has the factor log n."""
        return self.attention_scale != "inv_sqrt_d"


@dataclass(frozen=True, slots=True)
class Curve:
    """The values of one metric by epoch, for all seeds of one configuration (`Cell`).

    Attributes:
        epochs: The epochs of the S probes as the paper counts them, (S,).
        values: S samples, with one value for each seed that was still training.
    """

    epochs: NDArray[np.float64]
    values: Sequence[NDArray[np.float64]]

    @property
    def final(self) -> list[float]:
        """The value of each seed at the last epoch."""
        return [float(value) for value in self.values[-1]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """A row of the figure, which shows one metric for every attention scale.

    Attributes:
        metric, label: The metric that it shows, and the label of its axis.
        chance: The value that guessing reaches, if it is known.
        limits: The limits of the axis.
        ends: The lowest and the highest possible value; without a highest one, 0 and the highest of any training.
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
    """Reads the curves of every configuration, by scale and increasing length."""
    points: dict[tuple[Cell, str], list[tuple[int, list[float]]]] = {}
    for scale, length, metric, step, values in queried(sweep, _CURVES, list(metrics)):
        points.setdefault((Cell(scale, length), metric), []).append((step, values))
    return {
        key: Curve(np.array([step for step, _ in curve]) / STEPS_PER_EPOCH, [np.array(values) for _, values in curve])
        for key, curve in points.items()
    }


def cells_of(curves: Curves) -> list[Cell]:
    """Returns the configurations of the curves: those without log n scaling first, then by increasing length."""
    order = list(SCALES)
    return sorted({cell for cell, _ in curves}, key=lambda cell: (order.index(cell.attention_scale), cell.train_length))


def from_zero(curves: Curves, metric: str) -> Bounds:
    """Returns the limits of an axis: 0 and the highest value that any training has at any time."""
    return 0.0, max(
        float(values.max()) for (_, name), curve in curves.items() if name == metric for values in curve.values
    )


def draw_curves(curves: Curves, panels: Sequence[Panel]) -> Figure:
    """Draws means over seeds with 95% intervals: a row per panel, a column per attention scale, a colour per length."""
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
    """Draws the panel's grid and ticks, and a dashed line at the value of random guessing, if it is known."""
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
