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
