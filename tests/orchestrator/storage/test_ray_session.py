"""Nothing that is to last is kept in a session of Ray's, where a job's working directory is."""

import sys
from pathlib import Path

import pytest

from attnsweep.orchestrator import cli
from attnsweep.orchestrator.storage.place_names import new_directory
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.workloads.errors import UserError

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
        with pytest.raises(UserError, match=r"^--dir: .*outside of Ray.*give --dir with a full path, or s3://"):
            new_directory("mine", given)
    for given in (str(tmp_path / "mine"), "s3://bucket/mine"):
        assert new_directory("mine", given) == given


def test_the_default_mlflow_database_is_refused(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^MLFLOW_TRACKING_URI: .*; set it, for example to sqlite:////shared/"):
        tracking_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert tracking_uri() == "http://127.0.0.1:5000"


@pytest.mark.slow
def test_run_says_what_to_give_and_writes_nothing(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, subject in (([], "--dir"), (["--dir", str(tmp_path / "s")], "MLFLOW_TRACKING_URI")):
        monkeypatch.setattr(sys, "argv", ["attnsweep", "run", "quickstart", "--local", *more])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
        assert capsys.readouterr().err.startswith(f"attnsweep: {subject}: got ")
    assert not list(session.iterdir())
    assert not (tmp_path / "s").exists()
