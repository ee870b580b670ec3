"""Runs the pages as a reader would, and compares what they show with what is printed.

    python docs/execute.py [--keep DIR] [PAGE ...]

README.md is run first, in an empty directory. Every other page has a directory of its own with a copy of what
README.md left there, such as the sweep `sweeps/first`; the tutorial begins with nothing. In the order of a page: a
`bash` block is run; a `python` block is run, or written to a file if its first line is `# NAME.py`; each line of a
`text` block must have been printed by the block that was run last, numbers aside. Other languages, such as `sh` and
`py`, are shown only.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST = ROOT / "README.md"
PAGES = [FIRST, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "notes").glob("*.md"))]
BEGIN_WITH_NOTHING = (FIRST.name, "tutorial.md")
BLOCK = re.compile(r"^```(bash|python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def without_numbers(line: str) -> str:
    """Masks numbers and joins spaces, so that lines of two machines can be compared."""
    return " ".join(re.sub(r"\d[\d.,e+-]*", "#", line).split())


def run(page: Path, directory: Path) -> None:
    """Ends the program at the first block that fails, or that shows what was not printed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = ""
    for language, code in BLOCK.findall(page.read_text()):
        if language == "text":
            lines = {without_numbers(line) for line in printed.splitlines()}
            if missing := [line for line in code.splitlines() if without_numbers(line) not in lines]:
                shown = "\n".join(missing)
                sys.exit(f"{page.name} shows lines that were not printed:\n{shown}\n\nprinted:\n{printed}")
        elif name := re.match(r"# (\w+\.py)\n", code):
            (directory / name[1]).write_text(code)
        else:
            command = ["bash", "-e", "-c", code] if language == "bash" else [sys.executable, "-c", code]
            environment = {**os.environ, "PATH": path}
            done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
            printed = done.stdout + done.stderr
            if done.returncode != 0:
                sys.exit(f"{page.name}: this block failed with code {done.returncode}:\n{code}\n{printed}")


def main(pages: list[Path], directory: Path) -> None:
    for page in pages:
        here, first = directory / page.relative_to(ROOT).with_suffix(""), directory / FIRST.stem
        if page.name in BEGIN_WITH_NOTHING:
            here.mkdir(parents=True)
        else:
            shutil.copytree(first, here)
        began = time.monotonic()
        run(page, here)
        print(f"{page.name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="their names, such as sweeps.md; all without")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="run here, and keep everything")
    given = parser.parse_args()
    if unknown := {*given.pages} - {page.name for page in PAGES}:
        parser.error(f"PAGE: got {', '.join(unknown)}, expected some of {', '.join(page.name for page in PAGES)}")
    asked = [page for page in PAGES if page.name in given.pages or not given.pages]
    with tempfile.TemporaryDirectory() if given.keep is None else nullcontext(given.keep) as place:
        home = Path(place)
        home.mkdir(parents=True, exist_ok=True)
        if not (home / FIRST.stem).exists() and FIRST not in asked:
            asked.insert(0, FIRST)
        main(asked, home)
