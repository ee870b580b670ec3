"""Mistakes of users, and hostile input: one line, exit code 2, and nothing is written.

Damaged sweep directories: tests/orchestrator/tools/audit and tests/orchestrator/ledger.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import ray

from attnsweep.search_spaces.loading import shipped_names
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

DEEP = 100_000
HUGE = "1" + "0" * 400
DIGITS = "1" + "0" * 5000
"""More digits than Python converts to or from a number."""

_SPEC_HEAD = """
import sys
from attnsweep import Categorical, Float, Sweep

def spec(**given):
    return Sweep(**{"name": "x", "workload": "category_pairs", "space": {}, "trials": 1} | given)

"""
MODULES = {"raises_on_import": "raise ValueError('no')", "nested": "x = " + "(" * 1000 + ")" * 1000, "without": ""}
"""Python files by name; those below have a function `sweep()`, given by its body."""
BODIES = {
    "exits": "sys.exit(0)",
    "surrogate": "raise RuntimeError('\\ud800')",
    "recursion": "return sweep()",
    "twice": "return spec(space={'init_sigma': Categorical(choices=(0.1, 0.2, 0.1))})",
    "ratio": "return spec(sampler='grid', space={'init_sigma': Float(low=1e-308, high=1e308, log=True, points=3)})",
    "storage": "return spec(storage='postgresql://[::1')",
}
_GOOD = json.loads(small_sweep("s").to_json())
TEXTS = {
    "empty": "",
    "deep_inside": json.dumps(_GOOD)[:-1] + ', "x": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}",
    "infinite": json.dumps(_GOOD | {"trials": "?"}).replace('"?"', "1e400"),
    "description": json.dumps(_GOOD | {"description": "\ud800"}),
    "workload_nul": json.dumps(_GOOD | {"workload": "a\0b.py:W"}),
    "workload_loop": json.dumps(_GOOD | {"workload": "loop.py:W"}),
    "workload_itself": json.dumps(_GOOD | {"workload": "attnsweep.workloads.engine.contract:Workload"}),
}
"""Stored specs by name."""

LOOPS = tuple(
    f"{kind}.{suffix}" for suffix in ("py", "json") for kind in ("loop", "endless", "folder", "pipe", "binary")
)
FILES = (*(f"{name}.py" for name in (*MODULES, *BODIES, "wants")), *(f"{name}.json" for name in TEXTS))


LONG = "d" * 300
NO_PATHS = ("loop", "loop/x", "file/x", LONG, "x/" * 3000, "", "s3://[..", "http://[::1", "s3://℀/x", "x://u:p@[")
NO_SWEEPS = ("file", "nowhere", "pipe.py", "/dev/null")
NO_TEXTS = ("a\0b", "\ud800")
SPECS = (*FILES, *LOOPS, f"{LONG}.py", f"{LONG}.json", LONG, "", "a\0.py", "\ud800.json")
SET = {
    "warmup_steps": (HUGE, "9223372036854775808"),
    "learning_rate": (f"-{HUGE}", DIGITS, "1e400", "-Infinity"),
    "n_steps": ("2147483648", "1.5", ""),
    "variant": ("[" * DEEP, '{"a":' * DEEP, '{"kind":"float"}', '"\\ud800"', '"\\u0000"', "x" * DEEP, "\ud800"),
    "x" * DEEP: ("1",),
    "": ("5",),
}
ADDRESSES = ("[::1", "ray://[::1", "[zz]:1", "℀:1", "x:99999", "", ":", "ray://", "//", LONG + ":1", "a\nb:1")
OPTIONS = {
    "--seed": (HUGE, DIGITS, "-1", "x"),
    "--trials": (HUGE, "2147483648", "0"),
    "--replicates": (HUGE, "0"),
    "--trainers": ("0", DIGITS),
    "--pack-size": ("0",),
    "--max-failures": ("-1",),
}
SQL = ("\ud800", "select '\0'", "", "(" * DEEP, "x" * DEEP, "select $1", "select 'a' || repeat('x', 10**12)")
TRACKING_URIS = ("http://[::1", "postgresql://[::1", "sqlite:///good", "sqlite:///loop", "foo://", "sqlite:///file/x")
OTHERS = [
    *(["prepare-corpus", "--out", "o", f] for f in ("loop.tsv", "endless.tsv", "pipe.tsv", "folder.tsv", LONG)),
    ["reproduce", "shin-handmade", "--dir", "file"],
    ["reproduce", "x" * DEEP],
    ["specs", "exits.py"],
    ["replay", "good", "9" * 30 + "/1"],
    ["why", "good", "x" * DEEP],
    ["compare", "good", "good", "--by", "x" * DEEP],
    ["prepare-corpus", "pairs.tsv", "--out", "o", "--min-frequency", HUGE],
    ["x" * DEEP],
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
    """All of the above, some binary files, circular links, pipes, folders, and a valid sweep in `good`."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(_SPEC_HEAD + text)
    for name, body in BODIES.items():
        (folder / f"{name}.py").write_text(f"{_SPEC_HEAD}\ndef sweep():\n    {body}\n")
    (folder / "wants.py").write_text("def sweep(n): ...\n")
    for name, text in TEXTS.items():
        (folder / f"{name}.json").write_text(text)
    for suffix in ("py", "json", "tsv"):
        (folder / f"loop.{suffix}").symlink_to(f"loop.{suffix}")
        (folder / f"endless.{suffix}").symlink_to("/dev/zero")
        (folder / f"folder.{suffix}").mkdir()
        os.mkfifo(folder / f"pipe.{suffix}")
        (folder / f"binary.{suffix}").write_bytes(bytes(range(256)))
    (folder / "loop").symlink_to("loop")
    (folder / "file").touch()
    (folder / "pairs.tsv").write_text("en\tde\n" + "".join(f"a{n} b\tx y{n}\n" for n in range(60)))
    trials = trial_rows(0, ["solved"] * 2), trial_rows(1, ["marginal"] * 2)
    sweep_on_disk(folder / "good", small_sweep("s", trials=2, replicates=2), *trials)
    return folder


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Works in the folder, without Ray. Starting it fails the test, because the case was accepted."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("the case was accepted"))
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
    return {
        each.path
        for place in (".", "good")
        for each in os.scandir(place)
        if each.name not in ("__pycache__", ".mlflow.lock")
    }


@pytest.mark.parametrize("words", _cases(), ids=_id)
def test_a_mistake(words: list[str]) -> None:
    assert _mistake(words)


def test_a_mistake_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "[::1")
    assert _mistake(["run", "quickstart", "--engine", "eager"]).startswith("--address: got")
