"""Files of the user: on this machine, or carried from the driver's."""

from pathlib import Path

import pytest

from attnsweep.workloads import files
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file, take_over
from tests.refusals import refused


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
