"""What a Ray that starts on this machine gets ready for."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import ray
from packaging.version import Version

from attnsweep.orchestrator.training import cluster
from attnsweep.workloads.errors import UserError

SECONDS = 100
PROGRAM = "import sys\nfrom attnsweep.orchestrator.training.cluster import connection\n"
PROGRAM += "with connection(sys.argv[1]):\n    import ray\n    print(ray.is_initialized())\n"


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


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail\r\n"])
def test_what_is_no_ray_is_told_in_seconds(answer: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 1.0)
    with _listening(answer) as address, pytest.raises(UserError) as refused:
        cluster._check_reachable(address)
    assert (refused.value.subject, refused.value.given) == ("--address", address)


def _connect(address: str, environment: Mapping[str, str], home: Path) -> subprocess.CompletedProcess[str]:
    kept = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    command = [sys.executable, "-c", PROGRAM, address]
    return subprocess.run(
        command, env=kept | dict(environment), capture_output=True, text=True, timeout=SECONDS, check=False
    )


@pytest.mark.scale
def test_a_token_at_home_is_shown_to_a_ray_that_wants_one(local_ray: str) -> None:
    """That Ray was started by another program, which alone knows that the token is asked for."""
    done = _connect(local_ray, {}, Path.home())
    assert done.stdout == "True\n", done.stderr
    assert done.stderr == ""


@pytest.mark.skipif(Version(ray.__version__) < Version("2.59"), reason="the Ray of another program wants no token")
@pytest.mark.sample("nothing", "another's")
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RAY_AUTH_MODE": "disabled"},
        {"RAY_AUTH_MODE": "token"},
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of another"},
    ],
    ids=["nothing", "disabled", "none", "another's"],
)
def test_without_its_token_a_cluster_says_what_to_set(
    environment: Mapping[str, str], local_ray: str, tmp_path: Path
) -> None:
    done = _connect(local_ray, environment, tmp_path)
    assert done.stdout == ""
    assert f"--address: got '{local_ray}'" in done.stderr.splitlines()[-1]
