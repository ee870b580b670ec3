"""The documents, and what stands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def invocations(text: str) -> list[str]:
    """Every `attnsweep ...` command in a document's code."""
    shell = [line for block in blocks(text, "bash") for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    return [
        found[1]
        for line in (*shell, *spans)
        if (found := re.search(r"(?:^|[/ ])attnsweep (?!import )([a-z].*)$", line))
    ]
