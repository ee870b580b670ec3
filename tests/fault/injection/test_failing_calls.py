"""Every call about a file of a sweep directory fails once, in turn: what was finished stays, and a repeat completes it.

After the failure a command has succeeded all the same, or has said in one line which file failed and why. Its repeat,
or `resume`, ends with the rows of an undisturbed sweep and an audit without a problem.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.fault.injection.calls import OF_A_BAD_DISK, OF_LIMITS
from tests.fault.injection.commands import Answer, Commands

RUN = (
    *("run", "quickstart", "--trials", "3", "--replicates", "2", "--set", "n_steps=4", "--seed", "1"),
    *("--local", "--engine", "vmapped", "--pack-size", "3", "--no-report"),
)
VARYING = {"sweep", "pack", "lane", "pack_size", "environment", "finished_at", "train_seconds", "probe_seconds"}
"""Columns in which two runs of one sweep, or one with an interruption, may differ."""
SAMPLE = 4
"""Of so many failures spread over a command's calls."""
LAST = 2**40
REASONS_OF_ARROW = {"error stat()ing file", "error closing file"}
"""It does not say why."""


@dataclass(frozen=True)
class Failure:
    """How calls fail.

    Attributes:
        errors: With which error, by kind of call.
        last: The last one that fails; `None`: the first one alone.
        stride: Between the calls that are tried where all are asked for.
    """

    errors: dict[str, int]
    last: int | None = None
    stride: int = 1


FAILURES = {
    "disk": Failure(OF_A_BAD_DISK),
    "limits": Failure(OF_LIMITS, stride=3),
    "gone": Failure(OF_A_BAD_DISK, LAST, stride=7),
}


@dataclass(frozen=True)
class Act:
    """A command, and how a user completes it once the disk works again.

    Attributes:
        before: The folder's content at its start, as a fixture.
        words: The command in a folder.
        complete: Completes it in the folder; raises AssertionError if that fails.
        result: The directory with the result, in the folder.
    """

    before: str
    words: Callable[[Path], tuple[str, ...]]
    complete: Callable[[Commands, Path], None]
    result: str = "s"


def _call(commands: Commands, *words: str) -> None:
    answer = commands.call(*words, below=Path("/nowhere"))
    assert (answer.code, answer.traceback) == (0, ""), answer.said


def _resumed(home: Path) -> tuple[str, ...]:
    return "resume", str(home / "s"), "--local", "--no-report"


def _resume(commands: Commands, home: Path) -> None:
    if SweepDirectory.is_there(home / "s"):
        _call(commands, *_resumed(home))
    else:
        _call(commands, *RUN, "--dir", str(home / "s"))


ACTS = {
    "run": Act("nothing", lambda home: (*RUN, "--dir", str(home / "s")), _resume),
    "resume": Act("interrupted", _resumed, _resume),
    "compact": Act(
        "two", lambda home: ("compact", str(home / "s")), lambda call, home: _call(call, "compact", str(home / "s"))
    ),
}


@pytest.fixture(scope="module")
def commands(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    del no_mlflow
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc")
    with Commands(compiler, tmp_path_factory.mktemp("injected")) as commands:
        yield commands


@pytest.fixture(scope="module")
def befores(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The folders in which commands begin, by name."""
    home = tmp_path_factory.mktemp("befores")
    places = {name: home / name for name in ("nothing", "two", "interrupted")}
    for path in places.values():
        path.mkdir()
    _call(commands, *RUN, "--dir", str(places["two"] / "s"))
    _call(commands, *RUN, "--seed", "2", "--dir", str(places["two"] / "other"))
    for left in ("trainings/.p.0f.tmp", "curves/p-0123.parquet", "set_aside/curves/p.parquet"):
        path = places["two"] / "s" / left
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    run = (*RUN, "--dir", str(places["interrupted"] / "s"))
    commands.call(*run, below=places["interrupted"])
    calls = commands.made()
    [_, second, *_] = [at for at, call in enumerate(calls) if call.kind == "rename" and "/trainings/" in call.path]
    shutil.rmtree(places["interrupted"] / "s")
    assert commands.call(*run, below=places["interrupted"], number=second).code == 1
    assert Ledger(places["interrupted"] / "s").trainings().num_rows == 3
    return places


def _rows(path: Path) -> set[str]:
    ledger = Ledger(path)
    return {
        f"{table} { ({name: value for name, value in row.items() if name not in VARYING}) }"
        for table, rows in (("trainings", ledger.trainings()), ("curves", ledger.curves()), ("heads", ledger.heads()))
        for row in rows.to_pylist()
    }


def _problems(path: Path) -> list[str]:
    # Nothing is in MLflow, which is out of reach.
    return [str(problem) for problem in audit(path).problems if "mlflow-sync" not in problem.fix]


def _begin(before: Path, home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(before, home)


def _check_said(answer: Answer, home: Path, failure: Failure) -> None:
    assert answer.traceback == "", answer.traceback
    # Exit code 2 is a user's mistake: a directory that the user may not look into.
    is_refused = answer.failed is not None and answer.failed.error == errno.EACCES
    assert answer.code in ((0, 1, 2) if is_refused else (0, 1)), answer.said
    if answer.code:
        assert answer.failed is not None
        said = " ".join(answer.said.split())
        assert str(home) in said, said
        reasons = {os.strerror(error) for error in failure.errors.values()} | REASONS_OF_ARROW
        assert any(reason in said for reason in reasons), said


@pytest.mark.slow
@pytest.mark.timeout(3600)  # Where all calls fail in turn, this is a thousand commands.
@pytest.mark.sample("run-disk-sample", "compact-disk-sample")
@pytest.mark.parametrize("how_many", ["sample", "all"])
@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("name", ACTS)
def test_a_failing_call_loses_nothing(
    name: str, kind: str, how_many: str, commands: Commands, befores: Mapping[str, Path], tmp_path: Path
) -> None:
    act, failure, home = ACTS[name], FAILURES[kind], tmp_path / "home"
    before = befores[act.before]
    _begin(before, home)
    answer = commands.call(*act.words(home), below=home)
    assert (answer.code, answer.traceback) == (0, ""), answer.said
    undisturbed, n_calls = _rows(home / act.result), answer.n_calls
    assert n_calls > 50
    stride = max(n_calls // SAMPLE, 1) if how_many == "sample" else failure.stride
    wrong = []
    for number in range(0, n_calls, stride):
        _begin(before, home)
        answer = commands.call(*act.words(home), below=home, number=number, errors=failure.errors, last=failure.last)
        try:
            _check_said(answer, home, failure)
            if answer.code:
                act.complete(commands, home)
            assert _rows(home / act.result) ^ undisturbed == set()
            assert _problems(home / act.result) == []
        except Exception as error:  # noqa: BLE001  # All of them are wanted.
            wrong.append(f"call {number}, {answer.failed}: {type(error).__name__}: {error}")
    assert wrong == [], "\n".join(wrong)


@pytest.mark.slow
def test_an_opened_file_that_cannot_be_looked_at_is_not_damaged(
    commands: Commands, befores: Mapping[str, Path], tmp_path: Path
) -> None:
    home, words = tmp_path / "home", ("audit", str(tmp_path / "home" / "s"))
    _begin(befores["two"], home)
    commands.call(*words, below=home)
    calls = commands.made()
    looks = [at for at, call in enumerate(calls) if call.kind == "stat" and call.path.startswith("/s/trainings/0")]
    assert looks
    for number in looks:
        answer = commands.call(*words, below=home, number=number)
        assert (answer.code > 0, answer.traceback) == (True, "")
        assert "which sets it aside" not in answer.said
