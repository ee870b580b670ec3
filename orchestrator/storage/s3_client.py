"""The client of an S3-compatible object store, and the errors that its refusals become."""

import configparser
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow.fs as pafs
from obstore.store import S3Store

from attnsweep.orchestrator.storage.errors import StoreError, StoreMistakeError
from attnsweep.orchestrator.storage.locks import LEASE_SECONDS

if TYPE_CHECKING:
    from obstore.store import S3Config

MAX_RETRIES = 4
_CONNECT_SECONDS, _ANSWER_SECONDS = 5, 60
READ_SECONDS = 600.0
"""Timeout, in seconds, of a request that reads. All repetitions of a failed request together have the same timeout."""
WRITE_SECONDS = LEASE_SECONDS / 5
"""Timeout, in seconds, of a request that writes. All repetitions of a failed request together have the same timeout. A
write begins when the lease (the sweep's lock) lasts for at least half its duration. The timeout is so short that the
last repetition ends before the lease does."""

_SOURCES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Environment variables from which the client itself obtains credentials."""
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")

_FIXES = {
    r"NoSuchBucket|InvalidBucketName": "make the bucket, or check its name and AWS_ENDPOINT_URL",
    r"\b40[13]\b|AccessDenied|AccessKey|Signature|Token|redential": (
        "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and their rights to the bucket"
    ),
    r"no answer": "check AWS_ENDPOINT_URL and the network",
}

_IS_LATE = re.compile(r"no answer \((?!Connect)")
"""Matches the error of a store that was reached, but did not answer in time. So the store's address is right."""


def open_store(bucket: str, prefix: str, seconds: float = READ_SECONDS) -> S3Store:
    """Sends no request, unless the region is unknown. `seconds`: for a request and all its repetitions together.

    Raises:
        OSError: If AWS does not know the bucket's region.
    """
    profile = _profile()
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or profile.get("region")
    in_environment = any(os.environ.get(name) for name in _SOURCES)
    config = {} if in_environment else {name: profile[name] for name in _KEYS if name in profile}
    asks_machine = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true"
    is_anonymous = not (in_environment or config or asks_machine)
    if endpoint:
        config["endpoint"] = endpoint
    return S3Store(
        bucket,
        prefix=prefix,
        config=cast("S3Config", config),
        region=region or ("us-east-1" if endpoint else cast("str", pafs.resolve_s3_region(bucket))),
        skip_signature=is_anonymous,
        client_options={
            "allow_http": bool(endpoint and endpoint.startswith("http://")),
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            "read_timeout": timedelta(seconds=min(_ANSWER_SECONDS, seconds)),
            "timeout": timedelta(seconds=seconds),
        },
        retry_config={"max_retries": MAX_RETRIES, "retry_timeout": timedelta(seconds=seconds)},
    )


def refusal(uri: str, said: str, file: str | None = None) -> StoreError:
    """A StoreMistakeError if the user's configuration is known to be the cause, otherwise a StoreError.

    Args:
        said: The client's error text: the request, the store's answer in XML, and debugging output.
        file: The object of the request. The error names the object if requests for other objects of the sweep may
            succeed.
    """
    answer = next(_answers(said), said.partition("\n")[0])
    fix = next((fix for pattern, fix in _FIXES.items() if re.search(pattern, answer)), None)
    expected = "an object store that answers"
    if fix is None or _IS_LATE.search(answer):
        return StoreError(file or uri, given=answer, expected=expected, fix=fix or "look into the store's log")
    return StoreMistakeError(uri, given=answer, expected=expected, fix=fix)


def _answers(error_text: str) -> Iterator[str]:
    """Descriptions of a failed request, the best first: the store's own words, the HTTP status, or why none came."""
    if "169.254." in error_text:
        yield "no credentials: neither in the environment, nor from the role of this machine"
    if code := re.search(r"<Code>(.*?)</Code>", error_text, re.DOTALL):
        message = re.search(r"<Message>(.*?)</Message>", error_text, re.DOTALL)
        yield " ".join(unescape(": ".join(part[1] for part in (code, message) if part)).split())
    if status := re.search(r"status code: (\d{3}[^:\n]*)", error_text):
        yield status[1]
    if kind := re.search(r"HttpError \{\s*kind: (\w+)", error_text):
        yield f"no answer ({kind[1]})"


def _profile() -> dict[str, str]:
    """Region and keys of the user's profile in AWS's files."""
    name = os.environ.get("AWS_PROFILE") or "default"
    home = Path.home() / ".aws"
    files = (
        (os.environ.get("AWS_CONFIG_FILE") or home / "config", name if name == "default" else f"profile {name}"),
        (os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", name),
    )
    settings: dict[str, str] = {}
    for file, section in files:
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(file)
        except (OSError, ValueError, configparser.Error):
            continue
        if parser.has_section(section):
            settings |= dict(parser.items(section))
    return settings
