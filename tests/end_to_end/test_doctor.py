"""The doctor on a cluster with a token: a job on its head looks at every node."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from attnsweep.orchestrator.tools.doctor.examination import check_token

BIN = Path(sys.executable).parent
OPEN_RAY = """
import sys
import ray
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


def _doctor(environment: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "ray", "job", "submit", "--log-color", "false", "--", BIN / "attnsweep", "doctor", *options],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.scale
def test_a_cluster_that_is_set_up_passes(ray_head: Mapping[str, str], mlflow_uri: str, tmp_path: Path) -> None:
    found = _doctor({**ray_head, "MLFLOW_TRACKING_URI": mlflow_uri}, "--address", "auto", "--dir", str(tmp_path))
    lines = [line for line in found.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    assert found.returncode == 0, found.stdout
    assert [line[6:15].strip() for line in lines] == [
        *("versions", "token", "nodes", "code", "GPUs", "/dev/shm", "clocks", "a pack", "MLflow", "directory")
    ]
    assert "ok    token      the cluster asks for it" in lines
    assert any(line.startswith("ok    nodes      1: ") for line in lines)


@pytest.mark.scale
def test_an_address_without_a_cluster_is_a_line(ray_head: Mapping[str, str]) -> None:
    found = _doctor(ray_head, "--address", "127.0.0.1:1")
    assert found.returncode == 1
    assert "FAIL  cluster    127.0.0.1:1 is not the address of a running Ray cluster; start one with" in found.stdout


@pytest.mark.scale
@pytest.mark.ray
def test_a_cluster_that_asks_nobody_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a stranger's")
    with subprocess.Popen(
        [sys.executable, "-c", OPEN_RAY],
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as cluster:
        assert cluster.stdout is not None
        line = str(check_token(cluster.stdout.readline().strip()))
        cluster.communicate("")
    assert line.startswith(
        "FAIL  token      the cluster accepts clients without a token; start Ray with RAY_AUTH_MODE=token"
    )
