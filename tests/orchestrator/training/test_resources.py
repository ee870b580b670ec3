"""What a cluster's address leads to."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import ray
from packaging.version import Version

from attnsweep.orchestrator.training import cluster
from attnsweep.workloads.errors import UserError
from tests.refusals import refused

SECONDS = 100


@contextmanager
def _listening(answer: bytes | None) -> Iterator[str]:
    """What is no Ray, and answers everything alike or not at all. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with ExitStack() as callers, suppress(OSError):
                while True:
                    caller = callers.enter_context(server.accept()[0])
                    if answer is not None:
                        caller.sendall(answer)
                        caller.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(SECONDS)


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_is_no_ray_is_told_in_seconds(answer: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_HEALTH_SECONDS", 4.0)
    with _listening(answer) as address, refused("--address", UserError):
        cluster._check_reachable(address)


@pytest.mark.skipif(Version(ray.__version__) < Version("2.59"), reason="the Ray of another program wants no token")
@pytest.mark.parametrize("token", [None, "of another"])
def test_without_its_token_a_cluster_says_what_to_set(
    token: str | None, local_ray: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled" if token is None else "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", token or "")
    with refused("--address", UserError) as told:
        cluster._check_reachable(local_ray)
    assert told.value.fix.startswith("set RAY_AUTH_MODE=token")
