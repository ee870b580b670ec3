"""Where the client of an object store finds credentials and region, and what it says of refusals."""

import socket
from datetime import timedelta
from pathlib import Path

import pytest

from attnsweep.orchestrator.storage import s3
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.locks import LEASE_SECONDS
from attnsweep.orchestrator.storage.s3 import open_prefix
from attnsweep.orchestrator.storage.s3_client import WRITE_SECONDS, open_store, refusal
from tests.refusals import refused

CONFIG = "[default]\nregion = eu-north-1\n[profile lab]\nregion = us-west-2\n"
CREDENTIALS = """
[default]
aws_access_key_id = id-default
aws_secret_access_key = planted-secret
[lab]
aws_access_key_id = id-lab
aws_secret_access_key = planted-secret
aws_session_token = planted-token
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "credentials").write_text(CREDENTIALS)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.mark.parametrize(
    ("profile", "key", "region"), [(None, "id-default", "eu-north-1"), ("lab", "id-lab", "us-west-2")]
)
def test_keys_and_region_of_a_profile(
    profile: str | None, key: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if profile is not None:
        monkeypatch.setenv("AWS_PROFILE", profile)
    found = open_store("my-bucket", "x").config
    assert (found.get("access_key_id"), found.get("region")) == (key, region)
    assert found.get("session_token") == ("planted-token" if profile else None)


@pytest.mark.parametrize(
    ("said", "given"),
    [
        (
            "Generic S3 error: status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code><Message>It is "
            "&lt;no&gt; match.</Message><StringToSign>planted</StringToSign></Error>\n\nDebug source: ...",
            "got 'SignatureDoesNotMatch: It is <no> match.', .*; check AWS_ACCESS_KEY_ID",
        ),
        (
            "Error performing HEAD http://h/b - status code: 403 Forbidden: \n\nDebug",
            "got '403 Forbidden', .*; check AWS_AC",
        ),
        (
            "Error performing PUT http://169.254.169.254/latest: no answer",
            "got 'no credentials: .*; check AWS_ACCESS_KEY_ID",
        ),
        (
            "error sending\n\nDebug: HttpError {\n  kind: Timeout,",
            "got 'no answer .Timeout.', .*; check AWS_ENDPOINT_URL",
        ),
        ("status code: 507 Insufficient Storage: ", "got '507 Insufficient Storage', .*; look into the store's log"),
    ],
    ids=["xml", "status", "no credentials", "no answer", "other"],
)
def test_a_refusal_is_one_line_of_the_stores_words(said: str, given: str) -> None:
    error = refusal("s3://my-bucket/x", said)
    with pytest.raises(type(error), match=given):
        raise error
    assert "\n" not in str(error)
    assert "planted" not in str(error)


def test_requests_that_write_give_up_while_the_lease_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of a request's repetitions begins within the limit of all, or a pause later, and has a limit too."""
    uploads = open_prefix("my-bucket", "x")._uploads
    assert uploads.retry_config is not None
    longest_pause = uploads.retry_config["backoff"]["max_backoff"]
    assert uploads.retry_config["retry_timeout"] == timedelta(seconds=WRITE_SECONDS)
    assert timedelta(seconds=2 * WRITE_SECONDS) + longest_pause < timedelta(seconds=LEASE_SECONDS / 2)
    monkeypatch.setattr(s3, "WRITE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        prefix = open_prefix("my-bucket", "x")
        for write in (prefix.put_text, lambda name, text: prefix.swap_text(name, text, None)):
            with refused("sweep.json", StoreError):
                write("sweep.json", "text")
