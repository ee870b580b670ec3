"""The command line: a user's mistake gives one line and exit code 2, and writes nothing; the edges of the console
script."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from attnsweep.orchestrator.cli.answers import EXIT_FAULT
from tests.across.documents import ROOT
from tests.orchestrator.commands import command
from tests.orchestrator.conftest import Command, Mistake


@pytest.fixture(scope="module")
def with_faulty_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all mistakes: in another, each would start another process for MLflow."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "broken.py").write_text("def sweep(:\n")
    head = "from attnsweep import Sweep\ndef sweep():\n    return Sweep(name='x', space={}, trials=1, "
    (folder / "odd.py").write_text(head + "workload='no_such_workload')\n")
    return folder


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("quikstart", "SPEC"),
        ("quickstart --set init_sigm=1", "init_sigm"),
        ("quickstart --set init_sigma=-1", "init_sigma"),
        ("quickstart --set init_sigma", "--set"),
        ("quickstart --sampler bo", "sampler"),
        ("lr=0.1", "SPEC"),
        ("quickstart --replicates 0", "replicates"),
        ("quickstart --engine eager --address 127.0.0.1:1", "--address"),
        ("quickstart --local --address auto", "--local"),
        ("quickstart --trials many", "Invalid value for '--trials': Input should be a valid integer"),
        ("quickstart --trainers 4..2", "--trainers"),
        ("quickstart --shard 4/4", "--shard"),
        ("quickstart --local --device cuda", "--device"),
        ("missing.py", "SPEC"),
        ("broken.py", "broken.py"),
        ("odd.py", "workload"),
    ],
)
def test_a_mistake_in_run(
    arguments: str, message: str, with_faulty_files: Path, monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    monkeypatch.chdir(with_faulty_files)
    # No Ray starts, and none is asked.
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    before = set(with_faulty_files.iterdir()) - {with_faulty_files / "__pycache__"}
    error = mistake("run", *arguments.split())
    assert error.startswith(message)
    assert error.count("\n") == 1
    assert {path for path in with_faulty_files.iterdir() if path.name != "__pycache__"} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["status", "resume"])
def test_a_directory_without_a_sweep(name: str, tmp_path: Path, mistake: Mistake) -> None:
    assert mistake(name, str(tmp_path)).startswith("DIR: got ")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_another_sweep(tmp_path: Path, mistake: Mistake) -> None:
    (tmp_path / "sweep.json").write_text("{}")
    error = mistake("run", "quickstart", "--local", "--dir", str(tmp_path))
    assert f"attnsweep resume {tmp_path}" in error
    assert (tmp_path / "sweep.json").read_text() == "{}"


def _printed_and_imported(*words: str) -> tuple[str, set[str]]:
    code = (
        "import sys; from attnsweep.orchestrator import cli\n"
        f"sys.argv = {['attnsweep', *words]}\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    printed, modules = done.stdout.rstrip().rsplit("\n", 1)
    return printed, set(modules.split())


@pytest.mark.slow
@pytest.mark.parametrize("words", [["specs"], ["status"], ["query", "from trainings select 'quickstart' limit 1"]])
def test_light_commands_answer_without_torch_ray_or_mlflow(words: list[str]) -> None:
    command, *sql = words
    ledger = [] if command == "specs" else [str(ROOT / "docs" / "ledgers" / "quickstart")]
    printed, imported = _printed_and_imported(command, *ledger, *sql)
    assert "quickstart" in printed
    assert not {"torch", "ray", "mlflow"} & imported


@pytest.mark.slow
def test_the_help_is_printed_without_the_libraries_of_computing() -> None:
    printed, imported = _printed_and_imported("run", "--help")
    assert printed
    assert not {"numpy", "pyarrow", "torch", "ray", "optuna", "mlflow"} & imported


def test_output_that_has_no_room_is_one_line(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    monkeypatch.setattr(sys, "stdout", full)
    code, _, error = command("specs")
    # What is printed after it must not fail at the same place, as what is buffered for that file does.
    sys.stdout.write("the rest")
    sys.stdout.close()
    with suppress(OSError):
        full.close()
    assert (code, error.count("\n"), "No space left on device" in error) == (EXIT_FAULT, 1, True)


LOUD = """
import attnsweep as at
from torch import nn

print("loaded")

def model():
    print("building")
    return nn.Linear(2, 1)

def data(draw: at.Draw):
    print("drawing")
    return draw.normal(4, 2), draw.normal(4, 1)

loud = at.problem("loud", model=model, data=data, loss="mse")

def sweep():
    return at.Sweep(name="loud", workload="loud.py:loud", space={"n_steps": 1}, trials=1, replicates=1)
"""


@pytest.mark.slow
def test_what_the_users_code_prints_is_in_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loud.py").write_text(LOUD)
    ran = command("run", "loud.py", "--local", "--dir", "s", "--no-report", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["directory"] == "s"
    assert {"loaded", "building", "drawing"} <= {*ran.err.splitlines()}
    replayed = command("replay", "s", "0/0", "--json")
    assert json.loads(replayed.out)
    assert "building" in replayed.err
    for words in (("workloads", "loud.py:loud"), ("export", "s", "0/0", "--to", "pt", "--out", "out")):
        out = command(*words).out
        assert out
        assert {"loaded", "building", "drawing"}.isdisjoint(out.splitlines())
