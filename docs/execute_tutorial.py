"""Runs the tutorial as a reader would, in an empty directory, and compares what it shows with what is printed.

    python docs/execute_tutorial.py [--keep DIR]

In the order of the page: a `bash` block is run; a `python` block is run, or written to a file if its first line is
`# NAME.py`; each line of a `text` block must have been printed by the block that was run last, numbers aside. Blocks of
other languages, such as `sh`, are for the reader alone.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

PAGE = Path(__file__).parent / "tutorial.md"


def without_numbers(line: str) -> str:
    """Masks numbers and joins spaces, so that lines of two machines can be compared."""
    return " ".join(re.sub(r"\d[\d.,e+-]*", "#", line).split())


def printed_by(language: str, code: str, directory: Path) -> str:
    """Runs a block and returns what it printed. Ends the program if the block fails."""
    command = ["bash", "-e", "-c", code] if language == "bash" else [sys.executable, "-c", code]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(command, cwd=directory, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{PAGE.name}: this block failed with code {done.returncode}:\n{code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def execute(directory: Path) -> None:
    """Runs all blocks of the page in the directory. Ends the program at the first one that is wrong."""
    printed = ""
    for language, code in re.findall(r"^```(bash|python|text)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        if name := re.match(r"# (\w+\.py)\n", code):
            (directory / name[1]).write_text(code)
        elif language != "text":
            printed = printed_by(language, code, directory)
        else:
            lines = {without_numbers(line) for line in printed.splitlines()}
            if missing := [line for line in code.splitlines() if without_numbers(line) not in lines]:
                shown = "\n".join(missing)
                sys.exit(f"{PAGE.name}: shows lines that were not printed:\n{shown}\n\nprinted:\n{printed}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="run here, in an empty directory, and keep everything")
    directory = parser.parse_args().keep
    if directory is not None:
        directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory() if directory is None else nullcontext(directory) as place:
        execute(Path(place))
