"""The documents, and what stands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted(path for folder in ("", "notes") for path in (ROOT / "docs" / folder).glob("*.md"))
DOCUMENTS = {"README.md": README} | {path.relative_to(ROOT / "docs").as_posix(): path.read_text() for path in PAGES}
"""The texts by their place in docs/."""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def invocations(text: str) -> list[str]:
    """Every `attnsweep ...` command in a document's code."""
    code = [block.replace("\\\n", " ") for each in ("bash", "sh") for block in blocks(text, each)]
    shell = [line for block in code for line in re.split(r"\n| && ", block)]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    return [
        found[1]
        for line in (*shell, *spans)
        if (found := re.search(r"(?:^|[/ ])attnsweep (?!import )([a-z].*)$", line))
    ]
