"""Files of the user: on this machine, or carried from the driver's."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from attnsweep.workloads import files
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file, take_over
from tests.refusals import refused

CARRIES = """
import os, signal, sys
from attnsweep.workloads.files import take_over

take_over({"/corpus": b"one"})
if sys.argv[1] == "is killed":
    os.kill(os.getpid(), signal.SIGKILL)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _none_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_carried", {})
    monkeypatch.setattr(files, "_folders", [])


def test_a_carried_file_is_found_by_its_path_on_the_drivers_machine(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "corpus", tmp_path / "b" / "corpus"
    take_over({str(one): b"one", str(other): b"other"})
    assert [given_file(each, "corpus", "a file").read_bytes() for each in (one, other)] == [b"one", b"other"]
    assert not one.exists()
    with refused("corpus", UserError):
        given_file(tmp_path / "c", "corpus", "a file")


def test_what_is_carried_a_second_time_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "corpus"
    take_over({str(path): b"one"})
    first = given_file(path, "corpus", "a file")
    take_over({str(path): b"one"})
    assert given_file(path, "corpus", "a file") == first


def test_the_next_process_removes_what_a_killed_one_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def carrier(what: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", CARRIES, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    with carrier("is killed") as killed:
        killed.wait()
    [left] = tmp_path.iterdir()
    with carrier("goes on") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        [others] = tmp_path.iterdir()
        assert others != left
        take_over({"/corpus": b"one"})
        [mine] = {*tmp_path.iterdir()} - {others}
        other.communicate("")
    assert [*tmp_path.iterdir()] == [mine]
