"""How all figures of a report look: one width, one font, colours that the colour-blind tell apart, fixed by meaning."""

import base64
import functools
import io
import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from orchestrator.report.labels import clipped

OUTCOME_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "solved": "#009E73",
        "degenerate_zero": "#0072B2",
        "marginal": "#56B4E9",
        "runaway": "#CC79A7",
        "plateau": "#E69F00",
        "overfit": "#000000",
        "diverged": "#D55E00",
        "failed": "#595959",
    }
)
"""Okabe & Ito 2008, without its yellow, which is lost on white."""
ROLE_COLOURS: Mapping[str, str] = MappingProxyType(
    {"positional": "#0072B2", "syntactic": "#D55E00", "rare_token": "#009E73", "none": "#595959"}
)
_OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLUE, GREY = "#0072B2", "#595959"

WIDTH, HEIGHT = 3.4, 2.7
"""Inches: a column of a paper, and the width of a phone."""
LABEL_SIZE, TICK_SIZE, NOTE_SIZE = 9, 8, 6.5
_DPI = 200
_MANYFOLD = 10
_SVG = "http://www.w3.org/2000/svg"


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure of one panel, drawn without pyplot: no global state, no display."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=_DPI)
    return figure, figure.subplots()


def role_colour(role: str, roles: list[str]) -> str:
    """The same colour for a role in every figure; roles of a user's own take what is left, in the order of `roles`."""
    if role in ROLE_COLOURS:
        return ROLE_COLOURS[role]
    own = [each for each in roles if each not in ROLE_COLOURS]
    return _OTHER_COLOURS[own.index(role) % len(_OTHER_COLOURS)]


def tidy(panel: Axes, grid: str = "y") -> None:
    """Light grid behind, no box."""
    panel.grid(axis=grid, color="0.9", linewidth=0.6)  # type: ignore[arg-type]
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=TICK_SIZE)


def scale_steps(panel: Axes, steps: list[int]) -> None:
    """A logarithmic axis from the first probe on, with 0 beside it, where early probes are close together."""
    first = next((step for step in steps if step > 0), 0)
    if first and steps[-1] >= _MANYFOLD * first and len(steps) < steps[-1] / first / 2:
        panel.set_xscale("symlog", linthresh=first, linscale=0.5)
        decades = range(math.ceil(math.log10(first) + 1e-9), math.floor(math.log10(steps[-1])) + 1)
        panel.set_xticks([0.0, *(10.0**each for each in decades)])
        panel.minorticks_off()
    panel.set_xlim(left=0)
    panel.set_xlabel("optimizer steps", fontsize=LABEL_SIZE)


def figure_text(text: object, most: int = 26) -> str:
    """One short line that Matplotlib draws as it stands: no formulas in it, no characters that its font lacks."""
    drawn = "".join(letter if ord(letter) in _drawable() else "▯" for letter in clipped(text, most))
    return drawn.replace("$", r"\$")


@functools.cache
def _drawable() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())


def as_png(figure: Figure) -> bytes:
    """The figure as a bitmap for slides."""
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=_DPI, metadata={"Software": None})
    return sink.getvalue()


def as_svg(figure: Figure, hover: Mapping[str, str] | None = None) -> str:
    """The figure as a vector drawing with outlined letters, the same bytes each time.

    Args:
        figure: What to draw.
        hover: By the `gid` of an artist, what a browser says where the mouse rests on it.
    """
    sink = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "attnsweep", "svg.fonttype": "path"}):
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(sink.getvalue())
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for group in root.iter(f"{{{_SVG}}}g"):
        if words := (hover or {}).get(group.get("id", "")):
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = words
            group.insert(0, title)
    return ElementTree.tostring(root, encoding="unicode")


def inline_svg(svg: str, prefix: str) -> str:
    """A drawing to be put into a page beside others: its ids are made its own."""
    own = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", own, count=1), count=1
    )


def data_uri(svg: str) -> str:
    """A drawing as the source of an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
