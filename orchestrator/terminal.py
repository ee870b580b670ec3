"""Prints untrusted text on a terminal: control characters are escaped, so that no text can control the terminal."""

import re
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Lone surrogates, and characters that affect a terminal or the direction of writing, except tab and newline."""


def plain(text: str) -> str:
    r"""Escapes control characters: an escape character becomes the four characters `\x1b`."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class PlainConsole(Console):
    """Rich's console for untrusted text: it interprets no markup, and escapes control characters."""

    def __init__(
        self, *, file: TextIO | None = None, stderr: bool = False, soft_wrap: bool = False, width: int | None = None
    ) -> None:
        super().__init__(
            file=file, stderr=stderr, soft_wrap=soft_wrap, width=width, highlight=False, markup=False, emoji=False
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        # Rich keeps the control codes of its colours and live bars apart from the text.
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)
