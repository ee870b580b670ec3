"""What HTML pages are made from: Jinja templates, scripts that the page's security policy allows, and data for the
scripts."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TypeAlias

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.orchestrator.analysis.rates.intervals import share_label

_FOLDERS = re.compile(r"(?:(?<=:///)|(?<![^\s\"'`(\[{<=,;|]))/(?:[^\s/\"'`<>|:,;]+/)+(?=[^\s/])")
"""Matches the folders of an absolute path: at the start of a word, in quotes, or after the `:///` of a URI."""
JsonColumn: TypeAlias = dict[str, str]
"""A column of numbers: `type` is NumPy's code such as `u1`, `data` the little-endian bytes in base64."""
_SMALLEST, _LARGEST = 1e-37, 1e38
_EXACT = 2**24
"""Single precision represents all whole numbers up to this one exactly."""


def page_templates() -> Environment:
    """Creates the Jinja environment of all pages: texts are escaped, and an undefined name raises an error."""
    environment = Environment(
        loader=PackageLoader("attnsweep.orchestrator.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Only plain texts are changed. A `Markup`, such as a drawing of the report itself, is a subclass of `str` and
        # stays as it is.
        finalize=lambda value: without_folders(value) if type(value) is str else value,
    )
    environment.filters |= {"clip": clipped, "interval": share_label, "n": "{:,}".format}
    return environment


def without_folders(text: str) -> str:
    """Replaces the folders of absolute paths in a text: `/home/me/sweeps/mine.py:Mine` becomes `.../mine.py:Mine`.

    A page may be read on another machine, where the folders of this machine mean nothing.
    """
    return _FOLDERS.sub(".../", text)


def short_text(value: object) -> str:
    """Shortens a text for a page's script to 60 characters, and removes the folders of absolute paths."""
    return clipped(without_folders(str(value)), 60)


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
def page_script(*names: str) -> PageScript:
    """Joins files of the folder `templates`, in the given order, to one script.

    As a module, the script runs in strict mode after the page has loaded, and defines no globals.
    """
    folder = resources.files("attnsweep.orchestrator.report") / "templates"
    text = "\n" + "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return PageScript(Markup(text), Markup(f"sha256-{digest}"))


def script_json(data: object) -> Markup:
    """Formats JSON for a `script` element, escaped so that no text in it can end the element or begin a comment or a
    tag."""
    written = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def packed(values: NDArray[np.int64] | NDArray[np.float64], kind: str) -> JsonColumn:
    """Packs numbers as bytes of the given type, such as `u1`, for a page's script. The type must hold all of them."""
    return {"type": kind, "data": base64.b64encode(values.astype(f"<{kind}").tobytes()).decode()}


def counts(values: NDArray[np.int64]) -> JsonColumn:
    """Packs integers from 0 to 2^32 - 1 for a page's script, in the smallest type that holds them."""
    highest = int(values.max(initial=0))
    return packed(values, next(kind for kind in ("u1", "u2", "u4") if highest < 256 ** int(kind[1])))


def measures(values: NDArray[np.float64]) -> JsonColumn:
    """Packs numbers for a page's script, in single precision if all keep six correct digits, else in double precision.
    A missing number (null) must be given as NaN, and the script reads NaN as missing."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    are_whole = bool((np.mod(sizes, 1) == 0).all())
    fits = not len(sizes) or (sizes.min() > _SMALLEST and sizes.max() < (_EXACT if are_whole else _LARGEST))
    return packed(values, "f4" if fits else "f8")


def coded(values: Sequence[object], known: Sequence[object]) -> tuple[list[object], NDArray[np.int64]]:
    """Encodes values for a page's script: returns the list of the distinct values, and the index of each value in
    this list. Values that are also in `known` come first, in the order of `known`."""
    # 1 and True get different places in the list, although Python treats them as equal. So the keys of the dictionaries
    # contain the type of each value.
    keys = [(type(value), value) for value in values]
    present = dict.fromkeys(keys)
    first = {(type(value), value): None for value in known if (type(value), value) in present}
    order = {key: at for at, key in enumerate({**first, **present})}
    return [value for _, value in order], np.array([order[key] for key in keys], dtype=np.int64)
