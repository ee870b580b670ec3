"""`attnsweep docs`: the pages of the documentation, which the package contains, in the terminal."""

import re
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from attnsweep.workloads.errors import UserError, did_you_mean

_DOCS = Path(__file__).parents[2] / "docs"
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
    name = topic.lower().removesuffix(".md")
    if not topic:
        width = max(map(len, pages))
        found = [f"{page:{width}}  {text.splitlines()[0].lstrip('# ')}" for page, text in pages.items()]
        found.append("\nattnsweep docs NAME prints a page; start with: attnsweep docs tutorial")
    else:
        found = [pages[name]] if name in pages else _sections_about(topic, pages) or _lines_with(topic, pages)
    if not found:
        headings = [heading for text in pages.values() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
        fix = did_you_mean(topic, [*pages, *headings], "list the pages with: attnsweep docs")
        raise UserError("TOPIC", given=topic, expected="a page, or a heading or a word in one", fix=fix)
    typer.echo("\n".join(found))


def _pages() -> dict[str, str]:
    """By name, such as `sweeps`."""
    paths = sorted([*_DOCS.glob("*.md"), *_DOCS.glob("notes/2*.md")], key=lambda path: path.stem)
    return {path.stem: path.read_text() for path in paths if path.stem not in _SITE_ONLY}


def _sections_about(topic: str, pages: dict[str, str]) -> list[str]:
    """Those whose heading contains the topic, each under its page's name."""
    sections = []
    for name, text in pages.items():
        # Without code blocks, in which a comment looks like a heading.
        code = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
        prose = code.sub(lambda block: " " * len(block[0]), text)
        starts = [(each.start(), len(each[1]), each[2]) for each in re.finditer(r"^(#+) (.+)$", prose, re.MULTILINE)]
        for number, (start, level, heading) in enumerate(starts):
            if topic.lower() in heading.lower():
                later = [other for other, depth, _ in starts[number + 1 :] if depth <= level]
                sections.append(f"*{name}*\n\n{text[start : later[0] if later else None].strip()}\n")
    return sections


def _lines_with(word: str, pages: dict[str, str]) -> list[str]:
    lines = ((name, line) for name, text in pages.items() for line in text.splitlines())
    return [f"{name}: {line}" for name, line in lines if word.lower() in line.lower()]
