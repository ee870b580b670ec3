"""A store that refuses: one line that says why, exit code 2, no secret shown."""

import sys
from pathlib import Path

import pytest
from moto.core import set_initial_no_auth_action_count

from attnsweep.orchestrator import cli
from tests.orchestrator.storage.object_store import BUCKET, new_prefix, object_names

pytestmark = pytest.mark.usefixtures("s3")


def _mistake(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["attnsweep", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "planted-secret" not in error
    return error


COMMANDS = [["run", "quickstart", "--local", "--dir"], ["status"], ["resume"], ["compact"], ["mlflow-sync"]]
COMMAND_NAMES = [words[0] for words in COMMANDS]


@pytest.mark.parametrize("words", COMMANDS, ids=COMMAND_NAMES)
def test_a_bucket_that_is_not_there(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = _mistake([*words, "s3://no-such-bucket/x"], monkeypatch, capsys)
    assert error == (
        "attnsweep: s3://no-such-bucket/x: got 'NoSuchBucket: The specified bucket does not exist', expected an "
        "object store that answers; make the bucket, or check its name and AWS_ENDPOINT_URL\n"
    )


@pytest.mark.parametrize("words", COMMANDS, ids=COMMAND_NAMES)
def test_credentials_that_are_wrong(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"s3://{BUCKET}/x"
    error = set_initial_no_auth_action_count(0)(_mistake)([*words, place], monkeypatch, capsys)
    assert error.startswith(f"attnsweep: {place}: got '")
    assert error.endswith(
        "expected an object store that answers; "
        "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and their rights to the bucket\n"
    )


def test_a_store_that_is_out_of_reach(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("attnsweep.orchestrator.storage.s3_client.MAX_RETRIES", 0)
    error = _mistake(["status", f"s3://{BUCKET}/x"], monkeypatch, capsys)
    assert "got 'no answer (Connect)'" in error
    assert error.endswith("expected an object store that answers; check AWS_ENDPOINT_URL and the network\n")


@pytest.mark.parametrize("words", COMMANDS, ids=COMMAND_NAMES)
def test_credentials_in_the_uri(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    error = _mistake([*words, f"s3://key:planted-secret@{BUCKET}/x"], monkeypatch, capsys)
    assert f"got 's3://...@{BUCKET}/x', expected s3://BUCKET/PREFIX without credentials" in error
    assert list(tmp_path.iterdir()) == []


def test_a_prefix_without_a_sweep_and_one_with_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = new_prefix()
    error = _mistake(["status", str(prefix)], monkeypatch, capsys)
    assert error.startswith(
        f"attnsweep: DIR: got '{prefix}', expected a sweep directory, which contains a file sweep.json"
    )
    prefix.put_text("sweep.json", "{}")
    error = _mistake(["run", "quickstart", "--local", "--dir", str(prefix)], monkeypatch, capsys)
    assert f"continue that sweep with: attnsweep resume {prefix}; or choose another --dir" in error
    assert object_names(prefix) == {"sweep.json"}
