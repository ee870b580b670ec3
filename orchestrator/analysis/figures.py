"""The style of all figures (with `house.mplstyle`), and those of onsets and phase diagrams.

They are made without pyplot, which keeps a reference to every figure and may need a display.
"""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle

import numpy as np
import pyarrow as pa
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from attnsweep.orchestrator.analysis.labels import VERMILION, clipped, parameter_label
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram

_GROUP_STYLES = (
    ("#0072B2", "-"),
    ("#D55E00", "--"),
    ("#009E73", "-."),
    ("#CC79A7", ":"),
    ("#E69F00", "-"),
    ("#56B4E9", "--"),
    ("#000000", "-."),
)
_WIDTH, _HEIGHT = 3.4, 2.7
"""The size of a panel in inches: a column of a paper, or the width of a phone."""


@contextmanager
def house_style() -> Iterator[None]:
    """A `with` block or a decorator, inside which the user's own settings have no effect."""
    with style.context("attnsweep.orchestrator.analysis.house", after_reset=True):
        yield


def group_colour(number: int) -> str:
    return _GROUP_STYLES[number % len(_GROUP_STYLES)][0]


def legend_below(figure: Figure, handles: Mapping[str, Artist], title: str | None = None, columns: int = 4) -> None:
    """Under all panels. `handles`: artists by name."""
    names = [figure_text(name.replace("_", " "), 60) for name in handles]
    figure.legend(handles.values(), names, loc="outside lower center", ncols=columns, title=title)


def figure_text(text: object, n_characters: int = 26) -> str:
    """One line that Matplotlib draws literally: no formula, no characters that the font lacks."""
    drawn = "".join(letter if ord(letter) in _drawable() else "▯" for letter in clipped(text, n_characters))
    return drawn.replace("$", r"\$")


@functools.cache
def _drawable() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())


@house_style()
def plot_onset(onset: pa.Table, title: str = "") -> Figure:
    """Draws the table of `onset`, `event` or `emergence`: the share by step, one line per group with a pointwise 95%
    band, darker where it is unknown between two probes."""
    figure = Figure(figsize=(1.3 * _WIDTH, _HEIGHT + 0.15 * onset.num_rows))
    panel, names = figure.subplots(), onset.column_names[: onset.column_names.index("n_trials")]
    handles: dict[str, Artist] = {}
    for row, (colour, dashes) in zip(onset.to_pylist(), cycle(_GROUP_STYLES), strict=False):
        points = [tuple(point.values()) for point in row["curve"]]
        steps, shares, most, low, high = np.reshape(points, (-1, 5)).T
        panel.fill_between(steps, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
        panel.fill_between(steps, shares, most, step="post", color=colour, alpha=0.4, linewidth=0)
        group = " × ".join(row[name] for name in names) or "all"
        label = f"{group} ({row['n_trainings']:,} trainings, {row['n_trials']:,} trials)"
        [handles[label]] = panel.step(steps, shares, where="post", color=colour, linestyle=dashes)
    panel.set_xscale("symlog", linthresh=1)
    panel.set_xlabel("optimizer steps")
    panel.set_title(figure_text(title, 60))
    panel.set_ylim(-0.03, 1.03)
    panel.set_ylabel("share that has reached it")
    legend_below(figure, handles, ", ".join(map(parameter_label, names)) or None, 1)
    return figure


@house_style()
def plot_phase(diagram: PhaseDiagram) -> Figure:
    """The trials and, of a model, the fitted probability and the line where it is 1/2 with its 95% band."""
    figure = Figure(figsize=(1.3 * _WIDTH, 1.3 * _HEIGHT))
    panel, trials = figure.subplots(), diagram.trials
    shares = Normalize(0, 1)
    if diagram.surface is not None:
        x, y, probability, _, _ = diagram.surface.grid
        panel.pcolormesh(x, y, probability, norm=shares, shading="gouraud", rasterized=True)
        lines = diagram.contour()
        for line in lines:
            panel.plot(line[:, 0], line[:, 1], color=VERMILION, linewidth=1.8)
        depth = diagram.surface.border_depth()
        if lines and (depth >= 0).any():
            panel.contour(x, y, depth, levels=[0], colors=[VERMILION], linewidths=0.9, linestyles="dashed")
    panel.scatter(
        trials.x, trials.y, s=16, c=trials.k / trials.n, norm=shares, edgecolors="black", linewidths=0.6, zorder=3
    )
    for axis, side in ((diagram.x, "x"), (diagram.y, "y")):
        getattr(panel, f"set_{side}scale")("log" if axis.log else "linear")
        getattr(panel, f"set_{side}label")(parameter_label(axis.name))
    figure.colorbar(ScalarMappable(shares), ax=panel, label=figure_text(f"share that {diagram.ending.verb}", 48))
    return figure
