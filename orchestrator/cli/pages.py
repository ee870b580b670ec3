"""`attnsweep docs`: the pages of the documentation in the terminal. The package contains them."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from attnsweep.workloads.errors import UserError, did_you_mean

_DOCS = Path(__file__).parents[2] / "docs"
_FOLDERS = (_DOCS, _DOCS / "problems", _DOCS / "notes")
_SITE_ONLY = ("index", "changelog")
"""Pages that only the website of the documentation needs."""


def page_names() -> list[str]:
    return sorted(_pages())


def docs(
    words: Annotated[
        list[str] | None,
        Argument(metavar="TOPIC", help="A page, a heading, or a word that pages contain.", autocompletion=page_names),
    ] = None,
) -> None:
    """Print a page of the documentation, or the section about a topic; without a topic, list the pages."""
    pages, topic = _pages(), " ".join(words or ())
    if not topic:
        _list_titles(pages)
    elif topic.lower().removesuffix(".md") in pages:
        _show(pages[topic.lower().removesuffix(".md")])
    elif sections := _sections_about(topic, pages):
        _show("\n\n".join(sections))
    elif places := _places_with(topic, pages):
        typer.echo("\n".join(places))
    else:
        headings = [heading for text in pages.values() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
        expected = "the name of a page of the documentation, or a heading or a word in one of its pages"
        fix = did_you_mean(topic, [*pages, *headings], "list the pages with: attnsweep docs")
        raise UserError("TOPIC", given=topic, expected=expected, fix=fix)


def _pages() -> dict[str, str]:
    """By name, such as `sweeps`."""
    paths = sorted((path for folder in _FOLDERS for path in folder.glob("*.md")), key=lambda path: path.stem)
    return {path.stem: path.read_text() for path in paths if path.stem not in _SITE_ONLY}


def _list_titles(pages: Mapping[str, str]) -> None:
    width = max(map(len, pages))
    for name, text in pages.items():
        typer.echo(f"{name:{width}}  {text.splitlines()[0].lstrip('# ')}")
    typer.echo("\nattnsweep docs NAME prints a page; start with: attnsweep docs tutorial")


def _sections_about(topic: str, pages: Mapping[str, str]) -> list[str]:
    """Those whose heading contains the topic, each under its page's name."""
    code = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
    sections = []
    for name, text in pages.items():
        # Code blocks are blanked out first, because a comment line in them begins with # and looks like a heading.
        headings = re.finditer(r"^(#+) (.+)$", code.sub(lambda block: " " * len(block[0]), text), re.MULTILINE)
        starts = [(heading.start(), len(heading[1]), heading[2]) for heading in headings]
        for number, (start, level, heading) in enumerate(starts):
            if topic.lower() in heading.lower():
                later = [other for other, depth, _ in starts[number + 1 :] if depth <= level]
                sections.append(f"*{name}*\n\n{text[start : later[0] if later else None].strip()}")
    return sections


def _places_with(word: str, pages: Mapping[str, str]) -> list[str]:
    """The lines that contain the word, each after its page's name."""
    lines = [(name, line) for name, text in pages.items() for line in text.splitlines()]
    return [f"{name}: {line}" for name, line in lines if word.lower() in line.lower()]


def _show(text: str) -> None:
    """Markdown, formatted and paged in a terminal, as source elsewhere."""
    if not sys.stdout.isatty():
        typer.echo(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    # These are Git's options for `less`: colours are shown, and `less` exits at once if the text fits on the screen.
    os.environ.setdefault("LESS", "FRX")
    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
