"""One planted fault, and the result of the tests that should notice it."""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Literal, NoReturn

import pytest

SECONDS_PER_TEST = 120
"""A fault may make a test run without end."""
LOG = "planted.log"
"""The file with pytest's last output, in the copy."""
_LIBRARIES = (
    "torch",
    "torch.func",
    "duckdb",
    "optuna",
    "pyarrow.parquet",
    "pydantic",
    "rich",
    "scipy.stats",
)

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
    """pytest's exit status for some tests of a copy of the repository, with the copy's own sources.

    In a fork of this process, which has loaded the libraries: that is most of a short test's time.
    """
    for library in _LIBRARIES:
        importlib.import_module(library)
    child = os.fork()
    if child == 0:
        _run_tests(tests, tree)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_tests(tests: Sequence[str], tree: Path) -> NoReturn:
    status = -1
    try:
        log = os.open(tree / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(tree)
        # The editable install and this package are of another tree, so the copy's sources take precedence.
        paths = [str(tree / "src"), str(tree)]
        sys.path[:0] = paths
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "attnsweep")]:
            del sys.modules[name]
        # Those that `make test` runs.
        options = [
            "--exitfirst",
            "--quiet",
            "-p",
            "no:cacheprovider",
            f"--timeout={SECONDS_PER_TEST}",
            "-m",
            "not scale",
        ]
        status = pytest.main([*options, *tests])
    except BaseException:  # noqa: BLE001  # This process is a copy: no error may leave it.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


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
    # Python considers compiled code current if the source's size and second of modification are unchanged.
    Path(cache_from_source(str(file))).unlink(missing_ok=True)
