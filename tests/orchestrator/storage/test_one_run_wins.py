"""Two runs of one new prefix at once: exactly one makes its sweep there."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.storage.object_store import new_prefix

pytestmark = pytest.mark.usefixtures("s3")

RUNNER = """
import sys
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.errors import UserError
TAKEN = ("new or empty directory", "contains no sweep yet", "without a sweep")
spec = Sweep.from_json(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(SweepDirectory.create(line.strip(), spec, {}).sweep, flush=True)
    except UserError as refused:
        print("refused" if any(text in str(refused) for text in TAKEN) else refused)
        sys.stdout.flush()
"""


def _created(prefix: ObjectPrefix) -> str | None:
    try:
        return SweepDirectory.create(prefix, small_sweep("mine"), {}).sweep
    except UserError:
        return None


def test_of_threads_one_wins() -> None:
    for _ in range(12):
        prefix = new_prefix()
        with ThreadPoolExecutor(4) as threads:
            made = [sweep for sweep in threads.map(_created, [prefix] * 4) if sweep is not None]
        assert made == [SweepDirectory.open(prefix).sweep]


def test_of_processes_one_wins() -> None:
    here = Path(__file__).parents[3]
    command = [sys.executable, "-c", RUNNER, small_sweep("mine").to_json()]
    runners = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=here) for _ in range(2)
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
