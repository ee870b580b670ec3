"""Removes the folders of this machine from the texts of a report, which is read elsewhere."""

import re

_FOLDERS = re.compile(r"(?:(?<=:///)|(?<![^\s\"'`(\[{<=,;|]))/(?:[^\s/\"'`<>|:,;]+/)+(?=[^\s/])")
"""The folders of an absolute path: at the start of a word or in quotes, or after the `:///` of a URI."""


def without_folders(text: str) -> str:
    """`/home/me/sweeps/mine.py:Mine` becomes `.../mine.py:Mine`."""
    return _FOLDERS.sub(".../", text)
