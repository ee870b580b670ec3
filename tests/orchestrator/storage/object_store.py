"""An S3 server in the tests' own process, and copies of its sweeps on several machines."""

import json
import logging
import os
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from attnsweep.orchestrator.storage.copies import LOCK_FILE

BUCKET = "attnsweep-test"


@contextmanager
def object_store() -> Iterator[str]:
    """Starts a server with one bucket; the environment names it. Yields its address."""
    # Silences the line per request, which would bury the output of a failed test.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as environment, tempfile.TemporaryDirectory() as state:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            environment.delenv(name)
        environment.setenv("AWS_ENDPOINT_URL", address)
        environment.setenv("AWS_ACCESS_KEY_ID", "key")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
        # Prevents a search for credentials on the network.
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("XDG_STATE_HOME", state)
        _client().create_dir(BUCKET)
        put, putting = S3Response.put_object, threading.Lock()

        def put_object(response: S3Response) -> Any:
            # moto compares, then writes: two steps. In S3 a conditional write is one.
            with putting:
                return put(response)

        environment.setattr(S3Response, "put_object", put_object)
        yield address
    server.stop()


@contextmanager
def another_machine() -> Iterator[None]:
    """Has no copy of any sweep yet."""
    with pytest.MonkeyPatch.context() as environment, tempfile.TemporaryDirectory() as state:
        environment.setenv("XDG_STATE_HOME", state)
        yield


def new_prefix() -> str:
    return f"s3://{BUCKET}/sweeps/{uuid.uuid4().hex[:8]}"


def objects(uri: str) -> dict[str, bytes]:
    """All objects of a sweep except claims, by their names inside it."""
    store, base = _client(), uri.removeprefix("s3://")
    found = store.get_file_info(pafs.FileSelector(base, recursive=True, allow_not_found=True))
    paths = [
        info.path for info in found if info.type == pafs.FileType.File and not Path(info.path).name.startswith(".")
    ]
    return {path.removeprefix(f"{base}/"): store.open_input_stream(path).readall() for path in paths}


def claim_of(uri: str) -> dict[str, str]:
    with _client().open_input_stream(f"{uri.removeprefix('s3://')}/{LOCK_FILE}") as stream:
        stored: dict[str, str] = json.loads(stream.readall())
    return stored


def leave_claim(uri: str, holder: str = "run, pid 1 on elsewhere, since today") -> None:
    """That of a process on another machine, whose copy is the newest from then on."""
    with _client().open_output_stream(f"{uri.removeprefix('s3://')}/{LOCK_FILE}") as stream:
        stream.write(json.dumps({"holder": holder, "copy": "another", "beat": ""}).encode())


def _client() -> pafs.S3FileSystem:
    # The default limit of 3 s is short for a server that shares a busy core with the test.
    address = os.environ["AWS_ENDPOINT_URL"]
    return pafs.S3FileSystem(
        endpoint_override=address, region="us-east-1", request_timeout=60, allow_bucket_creation=True
    )
