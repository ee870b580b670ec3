"""Removes this machine's folders from the texts of a report, which may be read on another machine."""

import re

_FOLDERS = re.compile(r"(?:(?<=:///)|(?<![^\s\"'`(\[{<=,;|]))/(?:[^\s/\"'`<>|:,;]+/)+(?=[^\s/])")
"""Matches the folders of an absolute path: at the start of a word, in quotes, or after the `:///` of a URI."""


def without_folders(text: str) -> str:
    """Replaces the folders of absolute paths in a text: `/home/me/sweeps/mine.py:Mine` becomes `.../mine.py:Mine`."""
    return _FOLDERS.sub(".../", text)
