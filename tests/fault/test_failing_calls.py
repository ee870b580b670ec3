"""A call about a file of a sweep directory fails: what was finished stays, and a repeat completes it.

The command has succeeded all the same, or has said in one line which file failed and why. Its repeat, or `resume`,
ends with the rows of an undisturbed sweep and an audit without a problem.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.audit import audit
from tests.orchestrator.commands import Ended, command
from tests.orchestrator.ledger.kills import STEPS

pytestmark = pytest.mark.usefixtures("no_mlflow")

RUN = (
    *("run", "quickstart", "--trials", "3", "--replicates", "2", "--set", "n_steps=4", "--seed", "1"),
    *("--local", "--engine", "eager", "--pack-size", "3", "--no-report", "--dir"),
)
VARYING = {"sweep", "pack", "lane", "pack_size", "environment", "finished_at", "train_seconds", "probe_seconds"}
"""Columns in which two runs of one sweep, or one with an interruption, may differ."""
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES)
SAMPLE = 8
NEVER = 10**9


def _with_a_failure(number: int, home: Path, *words: object) -> tuple[Ended, int]:
    """Runs a command in which one call about a file below `home` fails; how it ended, and the number of calls."""
    n_calls, error = 0, ERRORS[number % len(ERRORS)]

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(what: Any, *more: Any, **named: Any) -> Any:
            nonlocal n_calls
            at = str(Path(f"/proc/self/fd/{what}").readlink()) if isinstance(what, int) else str(what)
            if at.startswith(str(home)):
                n_calls += 1
                if n_calls == number + 1:
                    raise OSError(error, os.strerror(error), at)
            return real(what, *more, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in [*((owner, name) for owner, name in STEPS if owner is os), (pa, "OSFile")]:
            patch.setattr(owner, name, failing(getattr(owner, name)))
        return command(*words), n_calls


def _rows(path: Path) -> set[str]:
    ledger = Ledger(path)
    return {
        f"{table} { ({name: value for name, value in row.items() if name not in VARYING}) }"
        for table, rows in (("trainings", ledger.trainings()), ("curves", ledger.curves()), ("heads", ledger.heads()))
        for row in rows.to_pylist()
    }


def _complete(path: Path, act: str) -> Ended:
    if act == "compact":
        return command("compact", path)
    resumes = SweepDirectory.is_there(path)
    return command("resume", path, "--local", "--no-report") if resumes else command(*RUN, path)


@pytest.mark.parametrize("act", ["run", "compact"])
def test_a_failing_call_loses_nothing(act: str, tmp_path: Path) -> None:
    home, before = tmp_path / "home", tmp_path / "before"
    before.mkdir()
    words = ("compact", home / "s") if act == "compact" else (*RUN, home / "s")
    if act == "compact":
        assert command(*RUN, before / "s").code == 0
    shutil.copytree(before, home)
    ended, n_calls = _with_a_failure(NEVER, home, *words)
    assert ended.code == 0
    assert n_calls > SAMPLE
    undisturbed, n_stopped = _rows(home / "s"), 0
    for number in range(0, n_calls, max(n_calls // SAMPLE, 1)):
        shutil.rmtree(home)
        shutil.copytree(before, home)
        ended, _ = _with_a_failure(number, home, *words)
        # 2: a directory that the user may not look into.
        assert ended.code in (0, 1, 2), number
        n_stopped += ended.code > 0
        if ended.code:
            assert str(home) in ended.err, number
            assert _complete(home / "s", act).code == 0, number
        assert _rows(home / "s") == undisturbed, number
        # Nothing is in MLflow, which is out of reach.
        assert [each for each in audit(home / "s").problems if "mlflow-sync" not in each.fix] == [], number
    assert n_stopped > 2
