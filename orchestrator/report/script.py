"""The page's own script: one text, which the page's policy allows by its hash."""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from markupsafe import Markup

_PARTS = ("data", "drawing", "cells", "scatter", "parallel", "curves", "detail", "heads", "tables")
"""`templates/explore_<part>.js`, before `explore.js`, which puts them together."""
_BEGIN = "begin({});\n"


@dataclass(frozen=True, slots=True)
class PageScript:
    """A script inlined in a page.

    Attributes:
        text: The content of the `script` element.
        hash: What the page's Content-Security-Policy calls it.
    """

    text: Markup
    hash: Markup


@cache
def page_script(*, live: bool = False) -> PageScript:
    """The script of a report. It runs as a module: strict, after the page, its names its own.

    Args:
        live: Whether the page is served, and asks its server for newer ones.
    """
    folder = resources.files("attnsweep.orchestrator.report") / "templates"
    names = (*(f"explore_{part}.js" for part in _PARTS), "explore.js")
    parts = [(folder / name).read_text(encoding="utf-8") for name in names]
    text = "\n" + "\n".join([*parts, (folder / "live.js").read_text(encoding="utf-8") if live else _BEGIN])
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return PageScript(Markup(text), Markup(f"sha256-{digest}"))
