"""The sweep directory's record when several processes try to create it at once."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from attnsweep.orchestrator.storage.errors import TakenError
from attnsweep.orchestrator.storage.locks import Lock
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.storage.object_store import new_prefix

N_TOGETHER = 4


def test_who_comes_while_another_makes_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.mkdir()
    with closing(Lock(path, "run")), pytest.raises(TakenError):
        SweepDirectory.create(path, small_sweep("second"), {})
    assert [file.name for file in path.iterdir()] == [".lock"]


RUNNER = """
import sys
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.errors import UserError
TAKEN = ("new or empty directory", "contains no sweep yet", "one process at a time")
spec = Sweep.from_json(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(SweepDirectory.create(line.strip(), spec, {}).sweep, flush=True)
    except UserError as refused:
        print("refused" if any(text in str(refused) for text in TAKEN) else refused)
        sys.stdout.flush()
"""


def test_of_machines_that_make_a_sweep_in_a_store_at_once_one_wins(s3: str, tmp_path: Path) -> None:
    here = Path(__file__).parents[3]
    command = [sys.executable, "-c", RUNNER, small_sweep("mine").to_json()]
    runners = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=here,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / machine)},
        )
        for machine in "ab"
    ]
    try:
        for runner in runners:
            assert runner.stdout is not None
            assert runner.stdout.readline() == "ready\n"
        for _ in range(12):
            prefix = new_prefix()
            for runner in runners:
                assert runner.stdin is not None
                runner.stdin.write(f"{prefix}\n")
                runner.stdin.flush()
            said = [runner.stdout.readline().strip() for runner in runners if runner.stdout is not None]
            assert sorted(said, key="refused".__eq__) == [SweepDirectory.open(prefix).sweep, "refused"]
    finally:
        for runner in runners:
            runner.communicate()
