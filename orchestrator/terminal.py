"""Texts on a terminal: what a sweep says cannot steer it."""

import re
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, marks that turn the direction of writing, and what is no character."""


def plain(text: str) -> str:
    r"""The text with `\x1b` written out for an escape, and so on."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class PlainConsole(Console):
    """Rich's console for texts of anyone's: they are shown as they are, without markup and without steering."""

    def __init__(
        self, *, file: TextIO | None = None, stderr: bool = False, soft_wrap: bool = False, width: int | None = None
    ) -> None:
        super().__init__(
            file=file, stderr=stderr, soft_wrap=soft_wrap, width=width, highlight=False, markup=False, emoji=False
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As Rich has it; the console's own steering (of colours, of a live bar) is not in a segment's text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)
