"""The doctor: for each check a fault is planted and its line read."""

from dataclasses import replace
from pathlib import Path

import pytest

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.tools import doctor
from attnsweep.orchestrator.tools.doctor import Node, check_nodes
from tests.orchestrator.commands import command

HERE = Environment.current()
OTHER_NUMPY = HERE.model_copy(update={"versions": {**HERE.versions, "numpy": "1.2.3"}}).model_dump()
NODE = Node(
    name="host2",
    environment=HERE.model_dump(),
    n_gpus=4,
    n_torch_gpus=4,
    shm_bytes=8 << 30,
    packs={"cpu": "", "cuda:0": ""},
)


def _lines(*nodes: Node) -> dict[str, str]:
    return {finding.check: str(finding) for finding in check_nodes(nodes)}


def test_nodes_without_a_fault_pass() -> None:
    lines = _lines(NODE, replace(NODE, name="host3"))
    assert lines["nodes"] == "ok    nodes      2: host2, host3"
    assert all(line.startswith("ok  ") for line in lines.values())
    assert set(lines) == {"nodes", "libraries", "GPUs", "/dev/shm", "a pack"}
    assert set(_lines(replace(NODE, error="no answer"))) == {"nodes"}
    assert "on the CPU" in _lines(replace(NODE, n_gpus=0, n_torch_gpus=0))["GPUs"]


@pytest.mark.parametrize(
    ("node", "check", "named"),
    [
        (replace(NODE, error="No module named attnsweep"), "nodes", "No module named attnsweep"),
        (replace(NODE, environment=OTHER_NUMPY), "libraries", "numpy"),
        (replace(NODE, n_torch_gpus=0), "GPUs", "sees none"),
        (replace(NODE, shm_bytes=64 << 20), "/dev/shm", "67 MB"),
        (replace(NODE, packs={"cpu": "", "cuda:5": "RuntimeError: no kernel"}), "a pack", "cuda:5"),
    ],
)
def test_the_fault_of_a_node_is_one_line(node: Node, check: str, named: str) -> None:
    lines = _lines(replace(NODE, name="host1"), node)
    assert lines[check].startswith("FAIL  ")
    assert ["host2" in lines[check], named in lines[check], "host1" in lines[check]] == [True, True, False]
    assert [each for each in lines.values() if each.startswith("FAIL")] == [lines[check]]


@pytest.mark.parametrize(
    ("variables", "address", "begins"),
    [
        ({}, None, "ok    token"),
        ({"RAY_AUTH_MODE": "disabled"}, None, "FAIL  token      RAY_AUTH_MODE=disabled"),
        ({}, "auto", "FAIL  token      RAY_AUTH_MODE is not set"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "none"}, "auto", "FAIL  token"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "read_by_all"}, "auto", "FAIL  token      read_by_all"),
    ],
)
def test_a_token_that_protects_nobody(
    variables: dict[str, str], address: str | None, begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("read_by_all").touch(mode=0o644)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(doctor.check_token(address)).startswith(begins)


@pytest.mark.slow
def test_mlflow_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, mlflow_uri: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    assert str(doctor.check_mlflow()).startswith(f"ok    MLflow     {mlflow_uri} answers")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@127.0.0.1:1")
    line = str(doctor.check_mlflow())
    assert line.startswith("FAIL  MLflow     http://...@127.0.0.1:1: ")
    assert "secret" not in line


@pytest.mark.scale
@pytest.mark.slow
def test_the_command_exits_with_1_where_a_check_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlflow_uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    for directory, code, last in ((tmp_path, 0, "ok"), (Path("/proc/s"), 1, "FAIL")):
        ended = command("doctor", "--dir", directory)
        words = [line.split()[0] for line in ended.out.splitlines()]
        assert (ended.code, words) == (code, ["ok"] * (len(words) - 1) + [last])
