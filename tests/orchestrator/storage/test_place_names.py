"""The names of places: accepted forms, no secret in messages, and nothing to last in a Ray session, where jobs run."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.place_names import new_directory, place_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.storage.object_store import BUCKET
from tests.refusals import refused


@pytest.mark.parametrize("end", ["", "/"])
def test_a_uri_is_a_local_copy_that_is_named_by_it(end: str, s3: str) -> None:
    uri = f"s3://{BUCKET}/sweeps/first"
    assert (name_of(place_of(uri + end)), name_of(Path("sweeps/first"))) == (uri, "sweeps/first")


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


def test_a_directory_that_cannot_be_made_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "s", tmp_path / ("long" * 100)):
        with refused("--dir", UserError):
            SweepDirectory.create(path, small_sweep("s"), {})


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
