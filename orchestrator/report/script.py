"""The JavaScript of the report page, which its Content-Security-Policy allows by hash, and its data as JSON."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TypeAlias

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

_PARTS = ("data", "drawing", "cells", "scatter", "parallel", "curves", "detail", "heads", "tables")
"""The script is `templates/explore_<part>.js` for these parts, then `explore.js`, which uses them."""
_BEGIN = "begin({});\n"
JsonColumn: TypeAlias = dict[str, str]
"""A column of numbers: `type` is NumPy's code such as `u1`, `data` the little-endian bytes in base64."""
_SMALLEST, _LARGEST = 1e-37, 1e38
_EXACT = 2**24
"""Single precision holds every whole number up to this one exactly."""


@dataclass(frozen=True, slots=True)
class PageScript:
    """A JavaScript module that is inlined in a page, and its hash for the page's security policy.

    Attributes:
        text: The content of the `script` element.
        hash: The script's hash, as the page's Content-Security-Policy writes it.
    """

    text: Markup
    hash: Markup


@cache
def page_script(*, live: bool = False) -> PageScript:
    """Returns the script of a report's page. As a module it runs in strict mode, after the page has loaded, and defines
    no globals.

    Args:
        live: Whether the page is served by `attnsweep serve`, and requests newer versions.
    """
    folder = resources.files("attnsweep.orchestrator.report") / "templates"
    names = (*(f"explore_{part}.js" for part in _PARTS), "explore.js")
    parts = [(folder / name).read_text(encoding="utf-8") for name in names]
    return _inlined([*parts, (folder / "live.js").read_text(encoding="utf-8") if live else _BEGIN])


@cache
def own_script(name: str) -> PageScript:
    """The script of a page that has one file of its own in `templates`."""
    folder = resources.files("attnsweep.orchestrator.report") / "templates"
    return _inlined([(folder / name).read_text(encoding="utf-8")])


def _inlined(parts: Sequence[str]) -> PageScript:
    text = "\n" + "\n".join(parts)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return PageScript(Markup(text), Markup(f"sha256-{digest}"))


def script_json(data: object) -> Markup:
    """Formats JSON for a `script` element, escaped so that no text in it can end the element or begin a comment or a
    tag."""
    written = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def counts(values: NDArray[np.int64]) -> JsonColumn:
    """Packs integers from 0 to 2^32 - 1 in the smallest type that holds them."""
    highest = int(values.max(initial=0))
    kind = next(kind for kind in ("u1", "u2", "u4") if highest < 256 ** int(kind[1]))
    return packed(values, kind)


def measures(values: NDArray[np.float64]) -> JsonColumn:
    """Packs numbers (NaN for null) in single precision if that keeps six digits of each, else in double precision."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    are_whole = bool((np.mod(sizes, 1) == 0).all())
    fits = not len(sizes) or (sizes.min() > _SMALLEST and sizes.max() < (_EXACT if are_whole else _LARGEST))
    return packed(values, "f4" if fits else "f8")


def coded(values: Sequence[object], known: Sequence[object]) -> tuple[list[object], NDArray[np.int64]]:
    """Encodes values as indices into a list of the distinct values. The list begins with the `known` values in their
    order."""
    # Keys contain the type of a value, because True == 1 in Python although True and 1 are two values to a reader.
    keys = [(type(value), value) for value in values]
    present = dict.fromkeys(keys)
    first = {(type(value), value): None for value in known if (type(value), value) in present}
    order = {key: at for at, key in enumerate({**first, **present})}
    return [value for _, value in order], np.array([order[key] for key in keys], dtype=np.int64)


def packed(values: NDArray[np.int64] | NDArray[np.float64], kind: str) -> JsonColumn:
    """Packs numbers in the given type, such as `u1`. The caller must choose a type that holds them."""
    return {"type": kind, "data": base64.b64encode(values.astype(f"<{kind}").tobytes()).decode()}
