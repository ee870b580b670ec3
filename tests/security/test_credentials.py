"""Passwords: refused where they would be stored, removed from everything shown."""

import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from rich.console import Console

from attnsweep.orchestrator import cli
from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.storage.credentials import refuse_credentials, without_credentials
from attnsweep.orchestrator.tracking.sync import sync
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Categorical
from attnsweep.workloads.errors import SpecError
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.present import present
from tests.refusals import refused

SECRET = "hunter2"
URIS = [
    (f"postgresql://user:{SECRET}@host/db", "postgresql://...@host/db"),
    (f"https://{SECRET}@github.com/x.git", "https://...@github.com/x.git"),
    (f"postgresql:///db?user=a&password={SECRET}&sslmode=on", "postgresql:///db?user=a&password=...&sslmode=on"),
    (f"https://host/x?X-Amz-Signature={SECRET}#top", "https://host/x?X-Amz-Signature=...#top"),
    # A user name with an @, as on Azure; passwords with blanks, an @, a slash, a port.
    (f"postgresql://user@server:{SECRET}@host/db", "postgresql://...@host/db"),
    (f"postgresql://u:c@rrect {SECRET} horse@host/db", "postgresql://...@host/db"),
    (f"postgresql://u:5000/{SECRET}@host/db", "postgresql://...@host/db"),
    *(
        (f"postgresql://host/db?{key}={SECRET}&a=b", f"postgresql://host/db?{key}=...&a=b")
        for key in ("sig", "passphrase", "key", "auth", "X-Auth", "pass%77ord")
    ),
]
REFUSED = [uri for uri, _ in URIS if uri.startswith("postgresql")]
HARMLESS = [
    "http://host:5000/x",
    "postgresql://host/db?sslkey=a.pem",
    "s3://b/a@b",
    "x = a @ b",
    "tracked at http://host:5000, or ask a@b",
    "http://host/x?design=a&authority=b&keyboard=c&sigma=d&monkey=e",
]


@pytest.mark.parametrize(("uri", "shown"), URIS)
def test_it_is_cut_out_wherever_it_stands(uri: str, shown: str) -> None:
    assert without_credentials(uri) == shown
    text = "failed:\n  '{}' is down; ask a@b\n"
    assert without_credentials(text.format(uri)) == text.format(shown) or SECRET not in without_credentials(
        text.format(uri)
    )


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_not_secret_stays(text: str) -> None:
    assert without_credentials(text) == text


@pytest.mark.parametrize("uri", REFUSED)
def test_a_spec_with_a_password_is_refused_before_anything_is_written(uri: str, tmp_path: Path) -> None:
    for changes in (
        {"storage": uri},
        {"description": f"see {uri}"},
        {"space": {"variant": Categorical(choices=("a", uri))}},
    ):
        with pytest.raises(SpecError) as told:
            refuse_credentials(small_sweep("s", **changes))
        assert SECRET not in str(told.value)
    with refused("storage", SpecError):
        run_sweep(small_sweep("s", storage=uri), tmp_path / "s", Resources(), Console())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_mlflow_is_told_nothing_secret(tmp_path: Path, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["attnsweep", "run", "x", "--address", f"ray://user:{SECRET}@host:1"])
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s"), trial_rows(0, ["solved"] * 4))
    sync(directory, mlflow_uri)
    client = MlflowClient(mlflow_uri)
    found = client.search_runs([present(client.get_experiment_by_name("category_pairs")).experiment_id])
    assert len(found) == 2
    assert SECRET not in "".join(str(run.to_dictionary()) for run in found)
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(stored) > 5
    assert [path for path in stored if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("uri", [uri for uri, _ in URIS])
def test_the_command_line_cuts_it_out_of_every_message(
    uri: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attnsweep", "status", f"{uri}/\x1b]0;x\x07"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert SECRET not in capfd.readouterr().err
