"""Converts Matplotlib figures to PNG and SVG, and SVG to parts of a page."""

import base64
import io
import re
from collections.abc import Mapping
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

_SVG = "http://www.w3.org/2000/svg"
_RASTER_DPI = 60
"""The resolution of smooth surfaces inside an SVG: low, because browsers smooth them and a report has many."""
_DARK = """
@media screen and (prefers-color-scheme: dark) {
[id$="patch_1"] > path, [id*="axes_"] > g:first-child > path[style*="fill: #ffffff"] { fill: #16181b !important; }
[id*="text_"] g { fill: #ececec !important; }
[style*="stroke: #000000"] { stroke: #ababab !important; }
[style*="stroke: #595959"] { stroke: #ababab !important; }
[style*="stroke: #e6e6e6"] { stroke: #33363b !important; }
[style*="fill: #595959"] { fill: #ababab !important; }
}
"""
"""Colours for dark mode. The selectors are Matplotlib's names for parts of an SVG; the colours are the page's."""


def _lay_out(figure: Figure) -> None:
    """Runs Matplotlib's layout engine once, in advance. Otherwise it would run for each file, and each figure would be
    drawn twice."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        with matplotlib.rc_context({"figure.constrained_layout.use": False, "figure.autolayout": False}):
            figure.set_layout_engine(None)


def as_png(figure: Figure) -> bytes:
    """Renders the figure as PNG, for slides."""
    _lay_out(figure)
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi="figure", metadata={"Software": None})
    return sink.getvalue()


def as_svg(figure: Figure, hover: Mapping[str, str] | None = None) -> str:
    """Renders the figure as SVG with outlined letters; the bytes are deterministic.

    Args:
        figure: The figure to render.
        hover: For the `gid` of an artist, the text that a browser shows when the mouse rests on the artist.
    """
    _lay_out(figure)
    sink = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "attnsweep", "svg.fonttype": "path"}):
        figure.savefig(sink, format="svg", dpi=_RASTER_DPI, metadata={"Date": None, "Creator": None})
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


def in_both_schemes(svg: str) -> str:
    """Adds a dark mode to an SVG drawing: paper, letters and lines change their colours, and the data keep theirs.

    Letters on top of coloured data keep their colour; they are recognized by a `gid` of their own.
    """
    return svg.replace("</style>", f"{_DARK}</style>", 1)


def inline_svg(svg: str, prefix: str) -> str:
    """Prepares an SVG drawing for inlining in a page: its ids get a prefix, so that they differ from those of other
    drawings."""
    own = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", own, count=1), count=1
    )


def data_uri(svg: str) -> str:
    """Encodes an SVG drawing as a data URI for the `src` of an `img` element."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
