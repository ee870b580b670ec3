"""The commands that measure the documents' figures exist, the harness of all benchmarks keeps its word, and the
simulation behind docs/scale.md gives what arithmetic gives."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
from scale_simulation import Cluster, bill, busy_share, limit  # noqa: E402

SCRIPTS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if path.name != "harness.py")
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "RESULTS.md",
    ROOT / "benchmarks" / "HISTORY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
COMMAND = re.compile(r"benchmarks/(\w+)\.py([^`]*)`")
SMALL = """
from harness import chosen, main

CASES = ("fused", "plain")

def measure(*, sizes: tuple[int, ...] = (1, 4), names: tuple[str, ...] = CASES, rate: float = 0.5, quick: bool = False):
    rows = [{"name": name, "seconds": {size: size * rate for size in sizes}} for name in chosen(CASES, names)]
    return {"quick": quick, "rows": rows}

if __name__ == "__main__":
    main(measure)
"""


def _options(script: Path) -> set[str]:
    [measure] = [
        each
        for each in ast.parse(script.read_text()).body
        if isinstance(each, ast.FunctionDef) and each.name == "measure"
    ]
    return {"--out", *("--" + each.arg.replace("_", "-") for each in measure.args.kwonlyargs)}


def test_documents_name_benchmarks_that_exist_with_arguments_that_they_take() -> None:
    named = [(document, *found) for document in DOCUMENTS for found in COMMAND.findall(document.read_text())]
    assert len(named) > 20
    for document, name, arguments in named:
        script = ROOT / "benchmarks" / f"{name}.py"
        assert script in SCRIPTS, (document, name)
        assert set(re.findall(r"--[a-z-]+", arguments)) <= _options(script), (document, name, arguments)


def test_benchmarks_say_how_they_are_called() -> None:
    for script in SCRIPTS:
        words = ast.get_docstring(ast.parse(script.read_text())) or ""
        command = words.partition(f"    python benchmarks/{script.name}")[2].partition("\n\n")[0]
        assert set(re.findall(r"--[a-z-]+", command)) == _options(script), script


def _run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "small.py").write_text(SMALL)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks")}
    command = [sys.executable, "small.py", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_harness_takes_arguments_and_writes_what_was_found(tmp_path: Path) -> None:
    done = _run(tmp_path, "--sizes", "2", "3", "--names", "pl", "--rate", "2", "--quick", "--out", "found.json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "found.json").read_text())
    assert found["benchmark"] == "small"
    assert found["quick"] is True
    assert found["rows"] == [{"name": "plain", "seconds": {"2": 4.0, "3": 6.0}}]
    assert done.stderr.splitlines()[2:] == [" name  seconds 2  seconds 3", "plain        4.0        6.0"]


def test_a_case_that_does_not_exist_is_refused_in_one_line(tmp_path: Path) -> None:
    done = _run(tmp_path, "--names", "compiled")
    assert done.returncode == 2
    assert done.stderr == "got 'compiled', expected the beginning of one of: fused; plain\n"


def test_one_trainer_waits_for_its_own_commit_and_hand_out() -> None:
    cluster = Cluster(n_trainers=1, pack_seconds=2.0, pack_size=100, driver_seconds=0.01, commit_seconds=0.5)
    cycle = 2.0 + 0.5 + cluster.seconds_per_pack
    assert busy_share(cluster, 2000, draw=lambda: 2.0) == pytest.approx(2.0 / cycle, rel=1e-3)


@pytest.mark.parametrize("n_trainers", [2000, 8000])
def test_too_many_trainers_share_what_the_driver_can_do(n_trainers: int) -> None:
    cluster = Cluster(n_trainers=n_trainers, commit_seconds=0.0)
    assert limit(cluster) < 1
    assert busy_share(cluster, 20 * n_trainers) == pytest.approx(limit(cluster), rel=0.05)


def test_few_trainers_hardly_wait() -> None:
    cluster = Cluster(n_trainers=100)
    assert limit(cluster) == 1
    assert busy_share(cluster, 4000) > 0.98


def test_the_command_prints_a_row_for_each_number_of_trainers() -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "scale_simulation.py"),
        "--trainers",
        "100",
        "1000",
        "--drivers",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["rows"]
    assert [(row["trainers"], row["drivers"]) for row in rows] == [(100, 2), (1000, 2)]


def test_more_drivers_of_few_trainers_each_commit_more_often() -> None:
    found = [bill(4000 // drivers, drivers, 1.6e7 / drivers, 120_000) for drivers in (1, 1000)]
    assert found[0]["commits_of_a_driver"] == 120_000
    assert found[1]["commits_of_a_driver"] == 16_000
    assert found[1]["request_dollars"] > 20 * found[0]["request_dollars"]
