"""The doctor: for each check a fault is planted and its line read."""

from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import torch

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.tools.doctor import examination
from attnsweep.orchestrator.tools.doctor.facts import NodeFacts, _trained, _with_slices
from attnsweep.orchestrator.tools.doctor.nodes import Node, check_nodes, this_machine
from attnsweep.workloads.engine.pack import Pack
from tests.orchestrator.commands import command

HERE = Environment.current()
FACTS = NodeFacts(
    host="host2",
    environment=HERE.model_dump(),
    n_gpus=4,
    n_torch_gpus=4,
    shm_bytes=8 << 30,
    clock=0.0,
    packs={"cpu": "", "cuda:0": ""},
)
NODE = Node(name="host2", facts=FACTS, n_ray_gpus=4, clock_offset=1.0, clock_slack=2.0)


def _lines(*nodes: Node) -> dict[str, str]:
    return {finding.check: str(finding) for finding in check_nodes(nodes, HERE)}


def _with(**facts: object) -> Node:
    return replace(NODE, facts=replace(FACTS, **facts))  # type: ignore[arg-type]


OTHER_NUMPY = HERE.model_copy(update={"versions": {**HERE.versions, "numpy": "1.2.3"}}).model_dump()


def test_nodes_without_a_fault_pass() -> None:
    lines = _lines(NODE, replace(NODE, name="host3"))
    assert lines["nodes"] == "ok    nodes      2: host2, host3"
    assert all(line.startswith("ok  ") for line in lines.values())
    assert set(lines) == {"nodes", "libraries", "GPUs", "/dev/shm", "clocks", "a pack"}


@pytest.mark.parametrize(
    ("node", "check", "named"),
    [
        (replace(NODE, facts=None, error="No module named attnsweep"), "nodes", "No module named attnsweep"),
        (_with(environment=OTHER_NUMPY), "libraries", "numpy"),
        (_with(n_torch_gpus=0), "GPUs", "sees 0"),
        (_with(shm_bytes=64 << 20), "/dev/shm", "67 MB"),
        (replace(NODE, clock_offset=-3600.0), "clocks", "3600 s"),
        (_with(packs={"cpu": "", "cuda:0": "", "cuda:5": "RuntimeError: no kernel"}), "a pack", "cuda:5"),
    ],
)
def test_the_fault_of_a_node_is_one_line(node: Node, check: str, named: str) -> None:
    lines = _lines(replace(NODE, name="host1"), node)
    assert lines[check].startswith("FAIL  ")
    assert ["host2" in lines[check], named in lines[check], "host1" in lines[check]] == [True, True, False]
    assert [each for each in lines.values() if each.startswith("FAIL")] == [lines[check]]


def test_a_machine_without_a_gpu_is_told_so_and_nodes_without_an_answer_nothing() -> None:
    assert _lines(_with(n_gpus=0, n_torch_gpus=0))["GPUs"].startswith("FAIL")
    bare = replace(_with(n_gpus=0, n_torch_gpus=0), n_ray_gpus=0)
    assert _lines(replace(bare, n_ray_gpus=None))["GPUs"] == _lines(bare)["GPUs"]
    assert _lines(bare)["GPUs"].startswith("ok")
    assert _lines(bare, NODE)["GPUs"].startswith("ok")
    assert set(_lines(replace(NODE, facts=None, error="no answer"))) == {"nodes"}


def test_a_pack_that_does_not_train_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bool:
        raise RuntimeError("no kernel image is available")

    assert _trained("cpu") == ""
    monkeypatch.setattr(Pack, "advance", broken)
    assert _trained("cpu") == "RuntimeError: no kernel image is available"


def test_a_pack_is_trained_on_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def current(index: int) -> nullcontext[None]:
        if index == 1:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "device", current)
    packs = NodeFacts.here().packs
    assert list(packs) == ["cpu", "cuda:0", "cuda:1", "cuda:2"]
    assert packs["cpu"] == ""
    assert packs["cuda:1"] == "RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.mark.parametrize(("n_seen", "n_counted"), [(1, 2), (0, 0)])
def test_slices_of_a_gpu_count_where_a_process_sees_one(
    n_seen: int, n_counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-5c89852c,MIG-16dfd2c2")
    assert _with_slices(n_seen) == n_counted
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert _with_slices(n_seen) == n_seen


@pytest.mark.scale
@pytest.mark.slow
def test_this_machine_answers() -> None:
    node = this_machine()
    assert node.facts is not None
    assert node.facts.environment == HERE.model_dump()
    assert node.facts.packs["cpu"] == ""


@pytest.mark.parametrize(
    ("found", "line"),
    [("9.9.9", "ray 9.9.9"), (None, "no ray")],
)
def test_a_library_that_is_too_new_or_missing(found: str | None, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(name: str) -> str:
        if name != "ray":
            return version(name)
        if found is None:
            raise PackageNotFoundError(name)
        return found

    assert examination.check_versions().fix == ""
    monkeypatch.setattr(examination, "version", planted)
    assert str(examination.check_versions()).startswith(f"FAIL  versions   {line}")


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
    assert str(examination.check_token(address)).startswith(begins)


@pytest.mark.slow
def test_mlflow_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, mlflow_uri: str) -> None:
    assert str(examination.check_mlflow(mlflow_uri)).startswith(f"ok    MLflow     {mlflow_uri} answers")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    line = str(examination.check_mlflow("http://user:secret@127.0.0.1:1"))
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
