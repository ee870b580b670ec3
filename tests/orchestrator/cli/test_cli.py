"""The command line: a user's mistake gives one line and exit code 2, and writes nothing."""

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest

from attnsweep.orchestrator import cli
from attnsweep.orchestrator.cli.answers import EXIT_FAULT
from attnsweep.reproduction.catalog import REPRODUCTIONS
from attnsweep.workloads.errors import UserError
from tests.across.documents import ROOT


def _mistake(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["attnsweep", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.fixture(scope="module")
def with_faulty_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all mistakes: in another, each would start another process for MLflow."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "broken.py").write_text("def sweep(:\n")
    head = "from attnsweep import Sweep\ndef sweep():\n    return Sweep(name='x', space={}, trials=1, "
    (folder / "odd.py").write_text(head + "workload='no_such_workload')\n")
    (folder / "sampler.py").write_text(head + "workload='category_pairs', sampler='bo')\n")
    return folder


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["quikstart"],
            "SPEC: got 'quikstart', expected a Python file with a function sweep(), a YAML file, ",
        ),
        (["quickstart", "--set", "init_sigm=1"], "init_sigm: got 1, expected a parameter of the workload"),
        (["quickstart", "--set", "init_sigma=-1"], "init_sigma: got -1, expected a finite number >= 0, or null"),
        (["quickstart", "--set", "init_sigma"], "--set: got 'init_sigma', expected NAME=VALUE"),
        (["quickstart", "--set", "variant=both"], "variant: got 'both', expected one of positions_only,"),
        (["quickstart", "--replicates", "0"], "replicates: got 0, expected greater than or equal to 1"),
        (["quickstart", "--trials", "0"], "trials: got 0, expected greater than or equal to 1"),
        (
            ["quickstart", "--engine", "vmapped", "--address", "127.0.0.1:1"],
            "--address: got '127.0.0.1:1', expected the address of a running",
        ),
        (
            ["quickstart", "--engine", "vmapped", "--address", "nowhere"],
            "--address: got 'nowhere', expected the address of a Ray cluster: auto,",
        ),
        (
            ["quickstart", "--local", "--address", "auto"],
            "--local: got '--address auto', expected a command without --address, because",
        ),
        (
            ["quickstart", "--local", "--trainers", "2"],
            "--local: got '--trainers 2', expected a command with at most --trainers 1, because",
        ),
        (["quickstart", "--trials", "many"], "Invalid value for '--trials': Input should be a valid integer"),
        (["quickstart", "--trainers", "0"], "--trainers: got '0', expected N or MIN..MAX in whole numbers from 1 on; "),
        (
            ["quickstart", "--trainers", "4..2"],
            "--trainers: got '4..2', expected N or MIN..MAX in whole numbers from 1 on",
        ),
        (["quickstart", "--trainers", "many"], "--trainers: got 'many', expected N or MIN..MAX"),
        (
            ["quickstart", "--local", "--wait-nodes", "2"],
            "--local: got '--wait-nodes 2', expected a command without --wait-nodes, because",
        ),
        (
            ["quickstart", "--local", "--priority", "-1"],
            "--local: got '--priority -1', expected a command without --priority, because",
        ),
        (
            ["quickstart", "--local", "--device", "cuda"],
            "--device: got 'cuda', expected a GPU that PyTorch can use on this machine",
        ),
        (
            ["quickstart", "--set", "init_sigma=NaN"],
            "space.init_sigma.value: got nan, expected a finite number, a text,",
        ),
        (
            ["quickstart", "--set", "variant=categories_only", "--set", "attention_activation=softmax"],
            "expectation: got 'population', expected expectation=sampled",
        ),
        (["missing.py"], "SPEC: got 'missing.py', expected a Python file; check the path"),
        (["broken.py"], "broken.py: got 'def sweep(:', expected valid Python code (invalid syntax); see line 1"),
        (
            ["odd.py"],
            "workload: got 'no_such_workload', expected module:Class, file.py:Class, or the name"
            " of an installed workload: abrupt_learning, category_pairs",
        ),
        (["sampler.py"], "sampler: got 'bo', expected 'tpe', 'random', 'qmc', 'grid', 'cmaes', 'boundary' or 'nsga2'"),
    ],
)
def test_a_mistake_in_run(
    arguments: list[str],
    message: str,
    with_faulty_files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(with_faulty_files)
    # No Ray starts, and none is asked.
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    before = set(with_faulty_files.iterdir()) - {with_faulty_files / "__pycache__"}
    error = _mistake(["run", *arguments], monkeypatch, capsys)
    assert error.startswith(f"attnsweep: {message}")
    assert error.count("\n") == 1
    assert {path for path in with_faulty_files.iterdir() if path.name != "__pycache__"} == before


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "resume", "compact", "mlflow-sync"])
def test_a_directory_without_a_sweep(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = _mistake([command, str(tmp_path)], monkeypatch, capsys)
    assert error.startswith(f"attnsweep: DIR: got '{tmp_path}', expected a sweep directory")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_another_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.json").write_text("{}")
    error = _mistake(["run", "quickstart", "--local", "--dir", str(tmp_path)], monkeypatch, capsys)
    assert f"continue that sweep with: attnsweep resume {tmp_path}; or choose another --dir" in error
    assert (tmp_path / "sweep.json").read_text() == "{}"


@pytest.mark.slow
@pytest.mark.parametrize("where", [["--local"], ["--address", "127.0.0.1:1"]], ids=["local", "before Ray is asked"])
def test_a_directory_that_cannot_be_written(
    where: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not by permissions, because the tests may run as root.
    error = _mistake(["run", "quickstart", *where, "--dir", "/proc/sweep"], monkeypatch, capsys)
    assert error.startswith("attnsweep: --dir: got '/proc/sweep', expected a directory that can be written")


def test_reproduce_lists_what_there_is_with_its_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attnsweep", "reproduce"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == [each.name for each in REPRODUCTIONS]
    assert "  3 min  the learned k^t q of solution 2 beside q* (Shin" in printed.out
    assert printed.err == ""


def test_a_reproduction_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    error = _mistake(["reproduce", "shin-fig9"], monkeypatch, capsys)
    assert error.startswith(
        "attnsweep: NAME: got 'shin-fig9', expected the name of a reproduction: shin-fig1, shin-fig2,"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.scale
@pytest.mark.slow
def test_a_reproduction_prints_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attnsweep", "reproduce", "shin-handmade", "--dir", str(tmp_path), "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed == json.loads((tmp_path / "shin-handmade.json").read_text())
    assert {row["agrees"] for row in printed["rows"]} >= {True, False}
    assert all(Path(figure).exists() for figure in printed["figures"])


@pytest.mark.scale
@pytest.mark.usefixtures("no_ray")
@pytest.mark.slow
def test_an_address_where_something_else_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attnsweep.orchestrator.training.cluster._ANSWER_SECONDS", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        error = _mistake(["run", "quickstart", "--address", address], monkeypatch, capsys)
    assert error.startswith(f"attnsweep: --address: got '{address}', expected the address of a running Ray cluster")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["specs"], ["status"], ["list"], ["query", "from trainings select 'quickstart' limit 1"]]
)
def test_light_commands_answer_without_torch_ray_or_pandas(words: list[str]) -> None:
    command, *sql = words
    ledger = [] if command == "specs" else [str(ROOT / "docs" / "ledgers" / "quickstart")]
    code = (
        "import sys; from attnsweep.orchestrator import cli\n"
        f"sys.argv = {['attnsweep', command, *ledger, *sql]}\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'ray', 'mlflow', 'pandas.core'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "quickstart" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_error_says_what_is_expected_and_how_to_mend_it() -> None:
    assert str(UserError("x", given=1, expected="2", fix="write 2")) == "x: got 1, expected 2; write 2"


def test_the_version_is_that_of_the_installed_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attnsweep", "--version"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert capsys.readouterr().out == f"attnsweep {version('attnsweep')}\n"


@pytest.mark.parametrize("words", [["--version"], ["specs"], ["reproduce"]])
def test_output_that_has_no_room_is_one_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attnsweep", *words])
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    monkeypatch.setattr(sys, "stdout", full)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    # What is printed after it must not fail at the same place, as what is buffered for that file does.
    sys.stdout.write("the rest")
    sys.stdout.close()
    with suppress(OSError):
        full.close()
    assert ended.value.code == EXIT_FAULT
    assert capsys.readouterr().err == "attnsweep: cannot write the output: No space left on device\n"


def test_a_closed_stdout_is_no_fault(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["attnsweep", "--version"])
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err) == (0, "")
