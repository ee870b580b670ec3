"""The commands that measure the documents' figures exist, and the harness that all benchmarks share keeps its word."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
