"""Mistakes of users, and hostile input: one line, exit code 2, and nothing is written.

Damaged sweep directories: tests/orchestrator/tools/audit and tests/orchestrator/ledger.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import ray

from attnsweep.orchestrator.training import resources
from attnsweep.search_spaces.loading import shipped_names
from tests.orchestrator.commands import command
from tests.security.hostile_files import DEEP, DIGITS, FILES, HUGE, LOOPS, write_hostile_files

LONG = "d" * 300
NO_PATHS = ("loop", "loop/x", "file/x", LONG, "x/" * 3000, "", "s3://[..", "http://[::1", "s3://℀/x", "x://u:p@[")
NO_SWEEPS = ("file", "nowhere", "pipe.py", "/dev/null")
NO_TEXTS = ("a\0b", "\ud800")
SPECS = (*FILES, *LOOPS, f"{LONG}.py", f"{LONG}.json", LONG, "", "a\0.py", "\ud800.json")
SET = {
    "warmup_steps": (HUGE, "9223372036854775808"),
    "learning_rate": (HUGE, f"-{HUGE}", DIGITS, "1e400", "-Infinity"),
    "n_steps": ("2147483648", "1.5", "true", ""),
    "variant": (
        *("[" * DEEP, '{"a":' * DEEP, "[[]]", '{"kind":"float"}', '"\\ud800"', '"\\u0000"', "x" * DEEP),
        *("\ud800", "\0"),
    ),
    "x" * DEEP: ("1",),
    "": ("5",),
}
ADDRESSES = (
    *("[::1", "[::1]:", "[::1]:x", "ray://[::1", "[zz]:1", "℀:1", "ray://℀:1", "x:99999", "", ":", "ray://", "//"),
    *(LONG + ":1", "a\nb:1"),
)
OPTIONS = {
    "--seed": (HUGE, DIGITS, "-1", "x"),
    "--trials": (HUGE, "2147483648", "0"),
    "--replicates": (HUGE, "0"),
    "--trainers": ("0", DIGITS),
    "--pack-size": ("0",),
    "--max-failures": ("-1",),
}
SQL = (
    *("\ud800", "select '\0'", "", "(" * DEEP, "x" * DEEP, "select 1" + "+1" * DEEP, "select $1"),
    "select 'a' || repeat('x', 10**12)",
)
TRACKING_URIS = (
    *(
        "http://[::1",
        "http://[",
        "postgresql://[::1",
        "sqlite:///good",
        f"sqlite:///{LONG}",
        "sqlite:///loop",
        "foo://",
    ),
    *("sqlite:///file/x", "postgresql+nodriver://h/x"),
)
OTHERS = [
    *(["prepare-corpus", "--out", "o", f] for f in ("loop.tsv", "endless.tsv", "pipe.tsv", "folder.tsv", LONG, "file")),
    ["reproduce", "shin-handmade", "--dir", "file"],
    ["reproduce", "x" * DEEP],
    ["specs", "exits.py"],
    ["replay", "good", "9" * 30 + "/1"],
    ["replay", "good", "x" * DEEP],
    ["why", "good", "x" * DEEP],
    ["compare", "good", "good", "--by", "x" * DEEP],
    ["compare", "good", "loop"],
    ["prepare-corpus", "pairs.tsv", "--out", "o", "--min-frequency", HUGE],
    ["prepare-corpus", "pairs.tsv", "--out", "o", "--held-out", "nan"],
    ["x" * DEEP],
    ["run", "quickstart", "\ud800"],
]


def _cases() -> Iterable[list[str]]:
    yield from (["run", spec] for spec in SPECS)
    yield from (["run", "quickstart", "--set", f"{name}={value}"] for name in SET for value in SET[name])
    yield from (["run", "quickstart", option, value] for option in OPTIONS for value in OPTIONS[option])
    # An engine that is named needs no trace of a step.
    yield from (["run", "quickstart", "--engine", "eager", "--address", address] for address in ADDRESSES)
    yield from (["status", path] for path in (*NO_PATHS, *NO_SWEEPS, *NO_TEXTS))
    yield from (["run", "quickstart", "--dir", path] for path in (*NO_PATHS, *NO_TEXTS))
    for name, *rest in (["audit"], ["report"], ["query", "from trials"], ["mlflow-sync"], ["resume"], ["compact"]):
        yield from ([name, path, *rest] for path in ("s3://[..", "loop"))
    yield from (["query", "good", sql] for sql in SQL)
    yield from (["mlflow-sync", "good", "--tracking-uri", uri] for uri in TRACKING_URIS)
    yield from OTHERS


def _id(words: list[str]) -> str:
    return ascii(" ".join(words)[:60])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile")
    write_hostile_files(path)
    return path


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Works in the folder, without Ray. Looking for what fits on it fails the test, because the case was accepted."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(resources, "_check_fits", lambda _: pytest.fail("the case was accepted"))
    monkeypatch.setattr(ray, "is_initialized", lambda: False)


def _mistake(words: list[str]) -> str:
    """The message, without our name; asserts that nothing was written."""
    before = _files()
    ended = command(*words)
    error = ended.err
    assert (ended.code, ended.out) == (2, "")
    assert error.startswith("attnsweep: ")
    assert error.count("\n") == 1
    # What is hostile is cut short; the names of the shipped sweeps are listed whole.
    assert len(error) - len(", ".join(shipped_names())) < 400
    assert _files() == before
    return error.removeprefix("attnsweep: ").removesuffix("\n")


def _files() -> set[str]:
    return {each.path for place in (".", "good") for each in os.scandir(place) if each.name != "__pycache__"}


@pytest.mark.parametrize("words", _cases(), ids=_id)
def test_a_mistake(words: list[str]) -> None:
    assert _mistake(words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("RAY_ADDRESS", "[::1", ["run", "quickstart", "--engine", "eager"]),
        ("MLFLOW_TRACKING_URI", "http://[::1", ["run", "quickstart"]),
        ("MLFLOW_TRACKING_URI", "http://u:secret@[::1", ["resume", "good"]),
        ("MLFLOW_TRACKING_URI", "sqlite:///good", ["audit", "good"]),
    ],
)
def test_a_mistake_in_the_environment(name: str, value: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    error = _mistake(words)
    assert error.startswith("--address: got" if name == "RAY_ADDRESS" else f"{name}: got")
    assert "secret" not in error
