"""Draws the attention maps of a training's heads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from attnsweep.orchestrator.analysis.figures import figure_text, house_style
from attnsweep.orchestrator.analysis.labels import GREY, VERMILION, role_colour
from attnsweep.orchestrator.inspection.heads import Head, Heads, Structure
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.head_maps import LayerMaps

_MAX_COLUMNS = 8
_MAX_LABELS = 32
_PANEL, _TALLEST = 1.55, 1.9
_LETTER, _MAX_LETTERS = 0.06, 14
_THIN = 0.8


def check_format(out: Path) -> None:
    """Raises UserError if the file's name does not end in .png or .svg."""
    if out.suffix.lower() not in (".png", ".svg"):
        expected = "a file name that ends in .png or .svg"
        raise UserError("--out", given=str(out), expected=expected, fix="write for example --out heads.png")


@house_style()
def heads_figure(heads: Heads) -> Figure:
    """A row for each layer, or several if it has more than eight heads."""
    layers = heads.maps.layers
    by_layer = [(layer, heads.of_layer(layer)) for layer in layers]
    starts = [(layer, heads, first) for layer, heads in by_layer for first in range(0, len(heads), _MAX_COLUMNS)]
    rows = [(layer, heads[first : first + _MAX_COLUMNS]) for layer, heads, first in starts]
    n_columns = max(len(row) for _, row in rows)
    longest = max(len(token) for layer in layers for token in layer.keys + layer.queries)
    room = _LETTER * min(longest, _MAX_LETTERS)
    heights = [min(max(_PANEL * len(layer.queries) / len(layer.keys), 0.3), _TALLEST) for layer, _ in rows]
    figure = Figure(figsize=(_PANEL * n_columns + room + 1.1, sum(height + room + 0.45 for height in heights) + 0.5))
    grid = figure.subplots(len(rows), n_columns, squeeze=False)
    largest = max(float(layer.weights_HQK.abs().max()) for layer in layers) or 1.0
    is_signed = any(bool((layer.weights_HQK < 0).any()) for layer in layers)
    roles = [head.role for head in heads.heads if head.role]
    for panels, (layer, row) in zip(grid, rows, strict=True):
        for panel in panels[len(row) :]:
            panel.set_visible(False)
        for panel, head in zip(panels, row, strict=False):
            image = _draw(panel, layer, head, largest, is_signed=is_signed)
            panel.set_title(_title(head), color=role_colour(head.role, roles) if head.role else GREY, fontsize=7)
        _name(panels[0], "y", layer.queries)
        panels[0].set_ylabel(figure_text(f"{heads.layer_names[layer.number]}: query"), fontsize=8)
    figure.colorbar(image, ax=grid, shrink=0.5, aspect=30, label="weight" if is_signed else "attention weight")
    title = figure_text(f"{heads.name}: {heads.maps.text}", 20 + 26 * n_columns)
    figure.suptitle(title, fontsize=8)
    return figure


def save_figure(figure: Figure, path: Path, suffix: str) -> None:
    """In the format of the suffix, without a date: equal figures give equal bytes."""
    form = suffix.lower().removeprefix(".")
    metadata = {"Software": None} if form == "png" else {"Date": None, "Creator": None}
    with rc_context({"svg.hashsalt": "attnsweep"}):  # for the names of an SVG's parts
        figure.savefig(path, format=form, metadata=metadata)


def _draw(panel: Axes, layer: LayerMaps, head: Head, largest: float, *, is_signed: bool) -> AxesImage:
    weights_QK = head.weights_QK.numpy()
    low, colours = (-largest, "RdBu_r") if is_signed else (0.0, "Greys")
    image = panel.imshow(weights_QK, vmin=low, vmax=largest, cmap=colours, aspect="auto", interpolation="nearest")
    panel.spines[:].set_visible(True)
    _name(panel, "x", layer.keys)
    panel.set_yticks([])
    if head.structure is not None:
        _draw_structure(panel, head.structure, len(layer.keys))
    return image


def _name(panel: Axes, axis: Literal["x", "y"], tokens: Sequence[str]) -> None:
    names = [figure_text(token, _MAX_LETTERS) for token in tokens] if len(tokens) <= _MAX_LABELS else []
    if axis == "x":
        panel.set_xticks(range(len(names)), names, rotation=90, fontsize=5)
    else:
        panel.set_yticks(range(len(names)), names, fontsize=5)
    panel.tick_params(axis, length=1.5, pad=1)


def _title(head: Head) -> str:
    role = figure_text((head.role or "not scored").replace("_", " "), 16)
    structure, second_line = head.structure, ""
    if structure is not None and structure.family != "none":
        second_line = f"\n{structure.label}, z {structure.z[structure.family]:.1f}"
    return f"{head.head}: {role}{second_line}"


def _draw_structure(panel: Axes, structure: Structure, n_tokens: int) -> None:
    last = n_tokens - 0.5
    match structure.family:
        case "S1":
            panel.plot([-0.5, last], [-0.5, last], color=VERMILION, linewidth=_THIN)
        case "S2":
            beside = structure.window + 0.5
            for shift in (-beside, beside):
                panel.plot([-0.5, last], [-0.5 + shift, last + shift], color=VERMILION, linewidth=_THIN)
        case "S3":
            for start in (start - 0.5 for start in structure.starts):
                panel.add_patch(
                    Rectangle((start, start), 1, structure.window, fill=False, edgecolor=VERMILION, linewidth=_THIN)
                )
    panel.set_xlim(-0.5, last)
    panel.set_ylim(last, -0.5)
