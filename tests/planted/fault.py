"""One planted fault, and what the tests that should notice it say."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Literal

SECONDS_PER_TEST = 120
"""A fault may make a test run without end."""

Finding = Literal["caught", "SURVIVED", "NOT PLANTED", "NOT RUN"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake somebody could make.

    Attributes:
        what: The mistake, in a few words.
        file: The source file, relative to the repository.
        right: The text to replace: exactly once in the file.
        wrong: The text planted in its place.
        tests: Of which at least one must fail: files, or tests as `file::test`.
    """

    what: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


def caught(fault: Fault, tree: Path) -> Finding:
    """Plants a fault in a copy of the repository, runs its tests there, and takes it out again.

    `NOT PLANTED`: the text to replace is not in the file exactly once. `NOT RUN`: the tests could not be collected.
    """
    file = tree / fault.file
    if not file.exists() or file.read_text().count(fault.right) != 1:
        return "NOT PLANTED"
    with _planted(fault, file):
        status = run_tests(fault.tests, tree)
    findings: dict[int, Finding] = {0: "SURVIVED", 1: "caught"}
    return findings.get(status, "NOT RUN")


def run_tests(tests: Sequence[str], tree: Path) -> int:
    """pytest's exit status for some tests of a copy of the repository, with the copy's own sources."""
    # The editable install leads to another tree: `PYTHONPATH` goes before it.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
    pytest = [sys.executable, "-m", "pytest", "--exitfirst", "--quiet", "-p", "no:cacheprovider"]
    with (tree / "planted.log").open("w") as log:
        return subprocess.run(
            [*pytest, f"--timeout={SECONDS_PER_TEST}", *tests],
            cwd=tree,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode


@contextmanager
def _planted(fault: Fault, file: Path) -> Iterator[None]:
    text = file.read_text()
    try:
        _write(file, text.replace(fault.right, fault.wrong))
        yield
    finally:
        _write(file, text)


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    # Python takes compiled code as current if size and second are the same.
    Path(cache_from_source(str(file))).unlink(missing_ok=True)
