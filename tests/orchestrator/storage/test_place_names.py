"""The names of places: accepted forms, no secret in messages, and nothing to last in a Ray session, where jobs run."""

import errno
import os
from pathlib import Path

import pytest

from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.place_names import new_directory, place_of
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep
from tests.refusals import refused


@pytest.mark.parametrize("text", ["s3://my-bucket/sweeps/first", "s3://my-bucket/sweeps/first/"])
def test_a_uri_is_a_prefix_and_as_text_itself(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    found = place_of(text)
    assert isinstance(found, ObjectPrefix)
    assert str(found) == "s3://my-bucket/sweeps/first"
    assert found == place_of(text)
    assert "127.0.0.1" not in repr(found)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://AKIA1:planted-secret@my-bucket/x", "s3://...@my-bucket/x"),
        ("s3://planted-secret@my-bucket/x", "s3://...@my-bucket/x"),
        ("s3://my-bucket/x?secret_key=planted-secret&access_key=a", "s3://my-bucket/x"),
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(text: str, shown: str) -> None:
    with pytest.raises(UserError) as told:
        place_of(text, "--dir")
    assert (told.value.subject, told.value.given) == ("--dir", shown)


@pytest.mark.parametrize(
    "text", ["s3://my-bucket", "s3://my-bucket/", "s3://B/x", "s3:/my-bucket/x", "s3://my-bucket/a//b", "gs://bucket/x"]
)
def test_another_uri_is_refused(text: str) -> None:
    with refused("DIR", UserError):
        place_of(text)


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [(errno.EIO, True), (errno.ESTALE, True), (errno.EACCES, False), (errno.ENAMETOOLONG, False)],
    ids=["EIO", "ESTALE", "EACCES", "ENAMETOOLONG"],
)
def test_a_disk_that_does_not_answer_is_no_mistake(
    error: int, is_fault: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(error, os.strerror(error), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", fail)
        with pytest.raises(UserError) as told:
            place_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", lambda path, **_: fail(path))
        with pytest.raises(UserError) as unmade:
            SweepDirectory.create(tmp_path / "s", small_sweep("s"), {})
    for each in (told, unmade):
        assert os.strerror(error) in str(each.value)
        assert isinstance(each.value, StoreError) is is_fault


SESSION = "session_2026-11-22_06-21-18_123456_4242/runtime_resources/working_dir_files/_ray_pkg_ab12"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a submitted job."""
    place = tmp_path / "ray" / SESSION
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return place


def test_default_and_relative_directories_are_refused(session: Path, tmp_path: Path) -> None:
    for given in (None, "sweeps/mine", str(session / "mine")):
        with refused("--dir", UserError):
            new_directory("mine", given)
    for given in (str(tmp_path / "mine"), "s3://bucket/mine"):
        assert new_directory("mine", given) == given


def test_the_default_mlflow_database_is_refused(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("MLFLOW_TRACKING_URI", UserError):
        tracking_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert tracking_uri() == "http://127.0.0.1:5000"
