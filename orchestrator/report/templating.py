"""Jinja templates of HTML pages."""

import re

from jinja2 import Environment, PackageLoader, StrictUndefined

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.orchestrator.analysis.rates.intervals import Rate, share_label
from attnsweep.orchestrator.analysis.tables import Row

_FOLDERS = re.compile(r"(?:(?<=:///)|(?<![^\s\"'`(\[{<=,;|]))/(?:[^\s/\"'`<>|:,;]+/)+(?=[^\s/])")
"""The folders of an absolute path: at the start of a word, in quotes, or after the `:///` of a URI."""


def page_templates() -> Environment:
    """Texts are escaped, and an undefined name raises an error."""
    environment = Environment(
        loader=PackageLoader("attnsweep.orchestrator.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # `Markup`, such as a drawing of ours, is a subclass of `str` and stays as it is.
        finalize=lambda value: without_folders(value) if type(value) is str else value,
    )
    environment.filters |= {"clip": clipped, "interval": _interval, "n": "{:,}".format}
    return environment


def _interval(rate: Rate | Row) -> str:
    return share_label(rate if isinstance(rate, Rate) else Rate.of(rate))


def without_folders(text: str) -> str:
    """`/home/me/sweeps/mine.py:Mine` becomes `.../mine.py:Mine`: pages are read on other machines."""
    return _FOLDERS.sub(".../", text)
