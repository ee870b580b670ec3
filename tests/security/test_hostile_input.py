"""Mistakes of users, and hostile input: one line, exit code 2, and nothing is written.

Damaged sweep directories: tests/orchestrator/audit and tests/orchestrator/ledger.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import ray

from attnsweep.orchestrator.training import resources
from attnsweep.search_spaces.loading import shipped_names
from tests.orchestrator.commands import command
from tests.security.hostile_files import DEEP, DIGITS, HUGE, write_hostile_files

Case = tuple[list[str], str]
LONG = "d" * 300
# Python's words for links that lead in a circle, and for a path with a NUL.
IS_OLD = sys.version_info < (3, 13)
CIRCLE = "Symlink loop" if IS_OLD else "Too many levels of symbolic links"
NUL = "embedded null byte" if IS_OLD else "lstat: embedded null character in path"
PATHS = {
    "loop": "DIR: got 'loop', expected the path of a directory; choose another path (Too many levels of"
    " symbolic links)",
    "loop/x": "DIR: got 'loop/x', expected the path of a directory; choose another path (Too many levels",
    "file/x": "DIR: got 'file/x', expected the path of a directory; choose another path (Not a directory)",
    LONG: f"DIR: got '{LONG[:200]}...', expected the path of a directory; choose another path (File name too long)",
    "x/" * 3000: "DIR: got 'x/x/x/",
    "file": "DIR: got 'file', expected a sweep directory",
    "nowhere": "DIR: got 'nowhere', expected a sweep directory",
    "": "DIR: got '', expected a directory, or s3://BUCKET/PREFIX; give a directory, for example ."
    " for the current folder",
    "pipe.py": "DIR: got 'pipe.py', expected a sweep directory",
    "/dev/null": "DIR: got '/dev/null', expected a sweep directory",
    "s3://[..": "DIR: got 's3://[..', expected a directory, or s3://BUCKET/PREFIX",
    "http://[::1": "DIR: got 'http://[::1', expected a directory, or s3://BUCKET/PREFIX",
    "s3://℀/x": "DIR: got 's3://℀/x', expected a directory, or s3://BUCKET/PREFIX",
    "x://u:p@[": "DIR: got 'x://...@[', expected s3://BUCKET/PREFIX without credentials",
    "a\0b": "argument: got 'a\\x00b', expected UTF-8 text without NUL",
    "\ud800": "argument: got '\\ud800', expected UTF-8 text without NUL",
}
SPECS = {
    "raises.py": "raises.py: sweep(): got 'RuntimeError: first second, in line ",
    "exits.py": "exits.py: sweep(): got 'SystemExit: 0, in line ",
    "panics.py": "panics.py: sweep(): got 'Panic: no, in line ",
    "mute.py": "mute.py: sweep(): got 'Mute, in line ",
    "surrogate.py": "surrogate.py: sweep(): got 'RuntimeError: \\ud800, in line ",
    "recursion.py": "recursion.py: sweep(): got 'RecursionError: maximum recursion depth exceeded",
    "wants.py": "wants.py: sweep(): got \"TypeError: sweep() missing 1 required positional argument: 'n'\", expected "
    "a function without arguments that returns an attnsweep.Sweep",
    "none.py": "none.py: sweep(): got None, expected a function that returns an attnsweep.Sweep; return a Sweep",
    "no_repr.py": "no_repr.py: sweep(): got <Mute>, expected a function that returns an attnsweep.Sweep",
    "generator.py": "generator.py: sweep(): got <generator object",
    "without.py": "without.py: got 'a file without a function sweep()', expected a Python file that defines the"
    " function sweep()",
    "raises_on_import.py": "raises_on_import.py: got 'ValueError: no, in line ",
    "exits_on_import.py": "exits_on_import.py: got 'SystemExit: 0, in line ",
    "panics_on_import.py": "panics_on_import.py: got 'Panic: no, in line ",
    "nested.py": "nested.py: got 'x = (((",
    "minus.py": "minus.py: got ",
    "binary.py": "binary.py: got \"UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 128",
    "loop.py": f"SPEC: got 'loop.py', expected a Python file; check the path ({CIRCLE}",
    "endless.py": "SPEC: got 'endless.py', expected a Python file; check the path (it is not a regular file)",
    "pipe.py": "SPEC: got 'pipe.py', expected a Python file; check the path (it is not a regular file)",
    "folder.py": "SPEC: got 'folder.py', expected a Python file; check the path (Is a directory)",
    "binary.json": "SPEC: got 'binary.json', expected a JSON file; correct the file",
    "loop.json": f"SPEC: got 'loop.json', expected a JSON file; check the path ({CIRCLE}",
    "endless.json": "SPEC: got 'endless.json', expected a JSON file; check the path (it is not a regular file)",
    "pipe.json": "SPEC: got 'pipe.json', expected a JSON file; check the path (it is not a regular file)",
    "folder.json": "SPEC: got 'folder.json', expected a JSON file; check the path (Is a directory)",
    f"{LONG}.py": "SPEC: got 'ddd",
    f"{LONG}.json": "SPEC: got 'ddd",
    LONG: "SPEC: got 'ddd",
    "": "SPEC: got '', expected a Python file with a function sweep(),",
    "a\0.py": "argument: got 'a\\x00.py', expected UTF-8 text without NUL",
    "\ud800.json": "argument: got '\\ud800.json', expected UTF-8 text without NUL",
    "empty.json": "SPEC: got 'empty.json', expected a JSON file; correct the file (Expecting value",
    "list.json": "spec: got [], expected fields with values: name, workload",
    "null.json": "spec: got None, expected fields with values: name, workload",
    "five.json": "spec: got 5, expected fields with values: name, workload",
    "deep.json": "SPEC: got 'deep.json', expected a JSON file; correct the file (maximum recursion depth exceeded",
    "deep_inside.json": "SPEC: got 'deep_inside.json', expected a JSON file; correct the file (maximum recursion depth",
    "infinite.json": "trials: got inf, expected a valid integer",
    "nan.json": "trials: got nan, expected a valid integer",
    "huge.json": "trials: got 1000",
    "digits.json": "SPEC: got 'digits.json', expected a JSON file; correct the file (Exceeds the limit (4300 digits)",
    "description.json": 'spec: got \'{"name": "s", "workload": "category_pairs",',
    "space_list.json": "space: got [], expected a valid dictionary",
    "kind.json": "space.n_steps: got {'kind': []}, expected a value, or one of the kinds 'value', 'categorical',",
    "twice.py": "init_sigma.choices: got 0.1, expected each choice once; remove the repeated choice",
    "equal.py": "init_sigma.choices: got 1.0, expected each choice once; remove the repeated choice",
    "grid.py": "space: got 'a grid of 1,000,000,000 points', expected a grid of at most 100,000 points;"
    " lower the field `points`",
    "points.py": "space: got 'a grid of 1,000,000,000 points', expected a grid of at most 100,000",
    "ratio.py": "init_sigma: got '1e-308 to 1e+308', expected a range with log=True in which high / low is"
    " not too large for a float; make the range",
    "int_value.py": "warmup_steps: got 1000",
    "int_64.py": "warmup_steps: got 9223372036854775808, expected a whole number >= 0 and <= 9.22337e+18",
    "int_choice.py": "warmup_steps: got 1000",
    "int_high.py": "high: got 1000",
    "int_low.py": "low: got 1000",
    "int_inexact.py": "high: got 4611686018427387904, expected less than or equal to 9007199254740992",
    "float_value.py": "learning_rate: got 1000",
    "float_high.py": "high: got 1000",
    "digits.py": "learning_rate: got <int>, expected a finite number > 0",
    "trials.py": "trials: got <int>, expected less than or equal to 2147483647",
    "seconds.py": "seconds: got 1000",
    "replicates.py": "replicates: got 1000",
    "at_most.py": "at_most: got 1000",
    "quantile.py": "quantile: got 1000",
    "storage.py": "storage: got 'postgresql://[::1', expected the URL of an Optuna storage that can be opened",
    "storage_nul.py": "storage: got 'sqlite:////\\x00', expected the URL of an Optuna storage that can be opened",
}
WORKLOADS = {
    "abstract.py": "W: got 'a class that lacks judge', expected a class that defines every abstract method of"
    " Workload; define the method judge",
    "parameters_none.py": "W.parameters: got None, expected a subclass of TrainingParameters; correct the workload's",
    "parameters_gone.py": "W.parameters: got None, expected a subclass of TrainingParameters",
    "parameters_dict.py": "W.parameters: got <class 'dict'>, expected a subclass of TrainingParameters",
    "parameters_made.py": "W.parameters: got P(",
    "levels_text.py": "W.level_names: got 'abc', expected a tuple of different strings",
    "levels_none.py": "W.level_names: got None, expected a tuple of different strings",
    "levels_gone.py": "W.level_names: got None, expected a tuple of different strings",
    "levels_twice.py": "W.level_names: got ('a', 'a'), expected a tuple of different strings",
    "name_none.py": "W.name: got None, expected a class attribute that is a string",
    "init_wants.py": 'init_wants.py:W: got "TypeError: W.__init__() missing 1',
    "init_raises.py": "init_raises.py:W: got 'ZeroDivisionError: division by zero, in line ",
    "init_exits.py": "init_exits.py:W: got 'SystemExit: 0, in line ",
    "field_plain.py": "P.kept: got 5, expected a field declared by parameter(default,",
    "field_list.py": "P.kept: got <class 'list'>, expected a field of one of the types float, int, bool, str",
    "field_unknown.py": "W.parameters: got 'P', expected field annotations that Python can resolve (name 'Nope'",
    "default_none.py": "P.kept: got None, expected a default that the parameter accepts: a whole number",
    "no_dataclass.py": "W.parameters: got 'P', expected a class with the decorator @dataclass(frozen=True,"
    " kw_only=True)",
    "post_init.py": "P: got {}, expected values that are allowed in combination; change the values; the"
    " workload's check raises ZeroDivisionError: division by zero",
    "workload_nul.json": f"SPEC: got 'a\\x00b.py', expected a Python file; check the path ({NUL})",
    "workload_long.json": "SPEC: got 'mmm",
    "workload_module.json": "workload: got 'mmm",
    "workload_loop.json": f"SPEC: got 'loop.py', expected a Python file; check the path ({CIRCLE}",
    "workload_pipe.json": "SPEC: got 'pipe.py', expected a Python file; check the path (it is not a regular file)",
    "workload_colon.json": "workload: got ':', expected module:Class, file.py:Class, or the name of",
    "workload_function.json": "workload: got 'os:getcwd', expected a subclass of",
    "workload_itself.json": "Workload: got 'a class that lacks build, judge, levels, loss', expected a class that"
    " defines every abstract",
}
SET = {
    f"warmup_steps={HUGE}": "warmup_steps: got 1000",
    f"learning_rate={HUGE}": "learning_rate: got 1000",
    f"learning_rate=-{HUGE}": "learning_rate: got -1000",
    f"learning_rate={DIGITS}": "learning_rate: got '1000",
    "learning_rate=1e400": "space.learning_rate.value: got inf, expected a finite number",
    "learning_rate=-Infinity": "space.learning_rate.value: got -inf, expected a finite number",
    "warmup_steps=9223372036854775808": "warmup_steps: got 9223372036854775808, expected a whole number",
    "n_steps=2147483648": "n_steps: got 2147483648, expected a whole number >= 1 and <= 2.14748e+09",
    "n_steps=1e3": "n_steps: got 1000.0, expected a whole number",
    "n_steps=true": "n_steps: got True, expected a whole number",
    "n_steps=": "n_steps: got '', expected a whole number",
    "variant=" + "[" * DEEP: "variant: got '[[[",
    "variant=" + '{"a":' * DEEP: 'variant: got \'{"a":{"a":',
    "variant=[[]]": "space.variant.value: got [[]], expected a finite number, a text, true, false or null",
    'variant={"kind":"float"}': "low: got 'nothing', expected a value",
    'variant="\\ud800"': "variant: got '\\ud800', expected one of positions_only,",
    'variant="\\u0000"': "variant: got '\\x00', expected one of positions_only,",
    "variant=\ud800": "argument: got 'variant=\\ud800', expected UTF-8 text without NUL",
    "variant=\0": "argument: got 'variant=\\x00', expected UTF-8 text without NUL",
    "variant=" + "x" * DEEP: "variant: got 'xxx",
    "x" * DEEP + "=1": "xxx",
    "=5": "--set: got '=5', expected NAME=VALUE",
}
ADDRESSES = {
    **dict.fromkeys(
        ("[::1", "[::1]:", "[::1]:x", "ray://[::1", "[zz]:1", "℀:1", "ray://℀:1", "x:99999", "", ":", "ray://", "//"),
        "expected the address of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT; give the"
        " address that `ray start --head` printed",
    ),
    LONG + ":1": "expected the address of a running Ray cluster; start one with `ray start --head`, or leave the "
    "address out to run here (the host name is not valid, so no machine can have it)",
    "a\nb:1": "expected the address of a running Ray cluster",
}
OPTIONS = {
    "--seed": {
        HUGE: "seed: got 1000",
        DIGITS: "Invalid value for '--seed'",
        "-1": "seed: got -1",
        "x": "Invalid value",
    },
    "--trials": {HUGE: "trials: got 1000", "2147483648": "trials: got 2147483648", "0": "trials: got 0"},
    "--replicates": {HUGE: "replicates: got 1000", "0": "replicates: got 0"},
    "--trainers": {
        "0": "--trainers: got '0', expected a number of trainers N, or a range MIN..MAX",
        DIGITS: "--trainers: got '1",
    },
    "--pack-size": {"0": "Invalid value for '--pack-size'"},
    "--max-failures": {"-1": "Invalid value for '--max-failures'"},
}
SQL = {
    "\ud800": "argument: got '\\ud800', expected UTF-8 text without NUL",
    "select '\0'": "argument: got \"select '\\x00'\", expected UTF-8 text without NUL",
    "": "SQL: got '', expected a query over the views",
    "(" * DEEP: "SQL: got '(((",
    "x" * DEEP: "SQL: got 'xxx",
    "select 1" + "+1" * DEEP: "SQL: got 'select 1+1",
    "select $1": "SQL: got 'select $1'",
    "select 'a' || repeat('x', 10**12)": "SQL: got ",
}
TRACKING_URIS = {
    **dict.fromkeys(
        ("http://[::1", "http://[", "postgresql://[::1", "sqlite:///good", f"sqlite:///{LONG}", "sqlite:///loop"),
        "expected the URI of an MLflow store, such as sqlite:///FILE or http://HOST:PORT; correct the URI (",
    ),
    "foo://": "expected an MLflow store that can be reached",
    "sqlite:///file/x": "expected an MLflow store that can be reached",
    "postgresql+nodriver://h/x": "expected an MLflow store that can be reached",
}
FILES = {
    "prepare-corpus --out o": {
        "loop.tsv": f"check the path ({CIRCLE}",
        "endless.tsv": "check the path (it is not a regular file)",
        "pipe.tsv": "check the path (it is not a regular file)",
        "folder.tsv": "check the path (Is a directory)",
        LONG: "check the path (File name too long)",
        "binary.tsv": "1 rows, none of which can be used",
        "file": "separate the columns by tabs",
    },
}
OTHERS: list[Case] = [
    (
        ["reproduce", "shin-handmade", "--dir", "file"],
        "--dir: got 'file', expected a directory on this machine, because figures are written to it",
    ),
    (["reproduce", "x" * DEEP], "NAME: got 'xxx"),
    (["specs", "exits.py"], "exits.py: sweep(): got 'SystemExit: 0"),
    (["replay", "good", "9" * 30 + "/1"], "TRAINING_ID: got '999"),
    (["replay", "good", "x" * DEEP], "TRAINING_ID: got 'xxx"),
    (["why", "good", "x" * DEEP], "TRAINING_ID: got 'xxx"),
    (["compare", "good", "good", "--by", "x" * DEEP], "--by: got 'xxx"),
    (["compare", "good", "loop"], PATHS["loop"]),
    (["prepare-corpus", "pairs.tsv", "--out", "o", "--min-frequency", HUGE], "--min-frequency: got 1000"),
    (
        ["prepare-corpus", "pairs.tsv", "--out", "o", "--held-out", "nan"],
        "--held-out: got nan, expected the share of the rows",
    ),
    (["x" * DEEP], "No such command"),
    (["run", "quickstart", "\ud800"], "argument: got '\\ud800'"),
]


def _cases() -> Iterable[Case]:
    for spec, says in (SPECS | WORKLOADS).items():
        yield ["run", spec], says
    for given, says in SET.items():
        yield ["run", "quickstart", "--set", given], says
    for option, values in OPTIONS.items():
        yield from ((["run", "quickstart", option, value], says) for value, says in values.items())
    for address, says in ADDRESSES.items():
        # An engine that is named needs no trace of a step.
        yield ["run", "quickstart", "--engine", "vmapped", "--address", address], says
    for path, says in PATHS.items():
        yield ["status", path], says
        if "sweep directory" not in says:
            yield ["run", "quickstart", "--dir", path], says.replace("DIR", "--dir", 1)
    for name, *rest in (["audit"], ["report"], ["query", "from trials"], ["mlflow-sync"], ["resume"], ["compact"]):
        yield [name, "s3://[..", *rest], PATHS["s3://[.."]
        yield [name, "loop", *rest], PATHS["loop"]
    for sql, says in SQL.items():
        yield ["query", "good", sql], says
    for uri, says in TRACKING_URIS.items():
        yield ["mlflow-sync", "good", "--tracking-uri", uri], says
    for words, files in FILES.items():
        yield from (([*words.split(), file], says) for file, says in files.items())
    yield from OTHERS


def _id(case: Case) -> str:
    return ascii(" ".join(case[0])[:60])


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


@pytest.mark.parametrize(("words", "says"), [pytest.param(*each, id=_id(each)) for each in _cases()])
def test_a_mistake(words: list[str], says: str) -> None:
    assert says in _mistake(words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("RAY_ADDRESS", "[::1", ["run", "quickstart", "--engine", "vmapped"]),
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
