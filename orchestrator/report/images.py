"""Figures as files and as parts of a page."""

import base64
import io
import re
from collections.abc import Mapping
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.style import DPI

_SVG = "http://www.w3.org/2000/svg"


def as_png(figure: Figure) -> bytes:
    """The figure as a bitmap for slides."""
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=DPI, metadata={"Software": None})
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
