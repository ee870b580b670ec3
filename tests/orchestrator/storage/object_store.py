"""An S3 server in the tests' own process."""

import json
import logging
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.fs as pafs
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from attnsweep.orchestrator.storage.locks import LEASE_FILE
from attnsweep.orchestrator.storage.place_names import place_of
from attnsweep.orchestrator.storage.s3 import ObjectPrefix

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
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            environment.delenv(name)
        environment.setenv("AWS_ENDPOINT_URL", address)
        environment.setenv("AWS_ACCESS_KEY_ID", "key")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
        # Prevents a search for credentials or a region on the network.
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        _client(address).create_dir(BUCKET)
        put, putting = S3Response.put_object, threading.Lock()

        def put_object(response: S3Response) -> Any:
            # moto compares, then writes: two steps. In S3 a conditional write is one.
            with putting:
                return put(response)

        environment.setattr(S3Response, "put_object", put_object)
        yield address
    server.stop()


def new_prefix() -> ObjectPrefix:
    prefix = place_of(f"s3://{BUCKET}/sweeps/{uuid.uuid4().hex[:8]}")
    assert isinstance(prefix, ObjectPrefix)
    return prefix


def copy_of(prefix: ObjectPrefix) -> ObjectPrefix:
    """A copy of a sweep, made inside the server without requests."""
    copy = new_prefix()
    bucket = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET]
    old, new = (str(each).removeprefix(f"s3://{BUCKET}/") for each in (prefix, copy))
    for name, key in list(bucket.keys.items()):
        if name.startswith(f"{old}/"):
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].copy_object(key, BUCKET, name.replace(old, new))
    return copy


def object_names(prefix: ObjectPrefix) -> set[str]:
    """All objects of a sweep, by their names inside it."""
    store = _client(os.environ["AWS_ENDPOINT_URL"])
    base = str(prefix).removeprefix("s3://")
    found = store.get_file_info(pafs.FileSelector(base, recursive=True, allow_not_found=True))
    return {info.path.removeprefix(base + "/") for info in found if info.type == pafs.FileType.File}


def _client(address: str) -> pafs.S3FileSystem:
    # The default limit of 3 s is short for a server that shares a busy core with the test.
    return pafs.S3FileSystem(
        endpoint_override=address, region="us-east-1", request_timeout=60, allow_bucket_creation=True
    )


def leave_lease(prefix: ObjectPrefix, pid: int = 7, processes: str | None = None) -> None:
    """Leaves a lease, by default that of a process on another machine."""
    held = {
        "work": "compact",
        "host": "elsewhere",
        "pid": pid,
        "since": "2025-11-01 12:00:00 UTC",
        "processes": processes,
    }
    prefix.put_text(LEASE_FILE, json.dumps(held) + "\nother 0\n")
