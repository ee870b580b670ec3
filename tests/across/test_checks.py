"""The project's own checks: each fails on its own kind of error. The command line stays fast to import."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ROOMS = ("workloads", "search_spaces", "orchestrator", "reproduction", "infra", "src")
HEAVY = ("torch", "ray", "mlflow")
START_UP_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True, slots=True)
class Planted:
    """A file with one error, and the check that must name it."""

    path: str
    text: str
    check: tuple[str, ...]
    finding: str


PLANTED = {
    "format": Planted(
        path="workloads/planted.py",
        text="WINDOW=4\n",
        check=("ruff", "format", "--check"),
        finding="--> workloads/planted.py:1:7",
    ),
    "lint": Planted(
        path="orchestrator/planted.py",
        text="import json\n",
        check=("ruff", "check", "--output-format=concise"),
        finding="orchestrator/planted.py:1:8: F401",
    ),
    # Only the file is checked: the whole project takes mypy a minute without its cache.
    "type": Planted(
        path="workloads/planted.py",
        text='WINDOW: int = "wide"\n',
        check=("mypy", "workloads/planted.py"),
        finding="workloads/planted.py:1: error: Incompatible types in assignment",
    ),
    "untyped": Planted(
        path="infra/planted.py",
        text="def window(half_width):\n    return half_width\n",
        check=("mypy", "infra/planted.py"),
        finding="infra/planted.py:1: error: Function is missing a type annotation",
    ),
    "layer: a training starts Ray": Planted(
        path="workloads/planted.py",
        text="import ray\n",
        check=("lint-imports", "--no-logo"),
        finding="attnsweep.workloads.planted -> ray (l.1)",
    ),
    "layer: a search space knows who runs it": Planted(
        path="search_spaces/planted.py",
        text="import attnsweep.orchestrator.cli\n",
        check=("lint-imports", "--no-logo"),
        finding="attnsweep.search_spaces.planted -> attnsweep.orchestrator.cli (l.1)",
    ),
    "layer: the command line knows a reproduction": Planted(
        path="orchestrator/planted.py",
        text="import attnsweep.reproduction.catalog\n",
        check=("lint-imports", "--no-logo"),
        finding="attnsweep.orchestrator.planted -> attnsweep.reproduction.catalog (l.1)",
    ),
    "layer: the engine knows a problem": Planted(
        path="workloads/engine/planted.py",
        text="import attnsweep.workloads.category_pairs\n",
        check=("lint-imports", "--no-logo"),
        finding="attnsweep.workloads.engine.planted -> attnsweep.workloads.category_pairs (l.1)",
    ),
}


def run(command: Sequence[str | Path], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=directory,
        # Imports the package of this directory, not the installed one.
        env=os.environ | {"PYTHONPATH": str(directory / "src")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for room in ROOMS:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / room, tmp_path / room, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_error_turns_its_check_red(copy: Path, planted: Planted) -> None:
    tool, *arguments = planted.check
    file = copy / planted.path
    file.write_text('"""A planted module."""\n')
    before = run([BIN / tool, *arguments], copy)
    assert before.returncode == 0, before.stdout

    file.write_text(planted.text)
    after = run([BIN / tool, *arguments], copy)
    assert after.returncode == 1, after.stdout
    assert planted.finding in after.stdout


def test_make_check_runs_every_tool() -> None:
    # A dry run. `--old-file` avoids planning an install. Make's variables are removed: under `make test` they add
    # output.
    plan = run(
        ["make", "--no-print-directory", "--dry-run", "--old-file=there/.installed-test", "check", "VENV=there"], ROOT
    )
    assert plan.stdout.splitlines() == [
        "there/bin/ruff format --check",
        "there/bin/ruff check",
        "there/bin/mypy --num-workers 2",
        "there/bin/lint-imports --no-logo",
    ]


@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        ("quick", "2 -m 'not ray and not server and not simulation and not slow and not scale'"),
        ("test", "3 -m 'not scale'"),
        ("test-all", "3"),
    ],
)
def test_each_target_chooses_its_tests(target: str, chosen: str) -> None:
    plan = run(
        ["make", "--no-print-directory", "--dry-run", "--old-file=there/.installed-test", target, "VENV=there"], ROOT
    )
    *_, tests = plan.stdout.splitlines()
    options = "--dist loadgroup --no-loadscope-reorder --numprocesses"
    assert tests == f"PYTHONDONTWRITEBYTECODE= there/bin/pytest {options} {chosen}"


@pytest.mark.slow
def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    program = f"""
import sys, time
import attnsweep.orchestrator.cli
print(*[name for name in {HEAVY} if name in sys.modules])
print(time.process_time())
"""
    seconds = []
    for _ in range(3):
        started = run([sys.executable, "-c", program], ROOT)
        assert started.returncode == 0, started.stdout
        heavy, own_seconds = started.stdout.splitlines()
        assert heavy == ""
        seconds.append(float(own_seconds))
    # CPU time, best of three: the test is about the imports, not about other load on the machine.
    assert min(seconds) < START_UP_SECONDS
