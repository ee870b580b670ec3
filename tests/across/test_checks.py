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
MOST_MODULES_AT_START = 450


@dataclass(frozen=True, slots=True)
class Planted:
    """A file with one error, and the words that must name it."""

    path: str
    text: str
    finding: str


FORMAT = Planted("workloads/planted.py", "WINDOW=4\n", "--> workloads/planted.py:1:7")
LINT = Planted("orchestrator/planted.py", "import json\n", "orchestrator/planted.py:1:8: F401")
TYPES = (
    Planted(
        "workloads/planted.py",
        'WINDOW: int = "wide"\n',
        "workloads/planted.py:1: error: Incompatible types in assignment",
    ),
    Planted(
        "infra/planted.py",
        "def window(half_width):\n    return half_width\n",
        "infra/planted.py:1: error: Function is missing a type annotation",
    ),
)
LAYERS = (
    Planted("workloads/planted.py", "import ray\n", "attnsweep.workloads.planted -> ray (l.1)"),
    Planted(
        "search_spaces/planted.py",
        "import attnsweep.orchestrator.cli\n",
        "attnsweep.search_spaces.planted -> attnsweep.orchestrator.cli (l.1)",
    ),
    Planted(
        "orchestrator/planted.py",
        "import attnsweep.reproduction.catalog\n",
        "attnsweep.orchestrator.planted -> attnsweep.reproduction.catalog (l.1)",
    ),
    Planted(
        "workloads/engine/planted.py",
        "import attnsweep.workloads.category_pairs\n",
        "attnsweep.workloads.engine.planted -> attnsweep.workloads.category_pairs (l.1)",
    ),
)
# mypy is given only the files: the whole project takes it a minute without its cache.
CHECKS = {
    "format": (("ruff", "format", "--check"), (FORMAT,)),
    "lint": (("ruff", "check", "--output-format=concise"), (LINT,)),
    "types": (("mypy", *(each.path for each in TYPES)), TYPES),
    "layers": (("lint-imports", "--no-logo"), LAYERS),
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
@pytest.mark.parametrize(("check", "errors"), CHECKS.values(), ids=CHECKS.keys())
def test_planted_errors_turn_their_check_red(copy: Path, check: tuple[str, ...], errors: tuple[Planted, ...]) -> None:
    tool, *arguments = check
    for each in errors:
        (copy / each.path).write_text('"""A planted module."""\n')
    before = run([BIN / tool, *arguments], copy)
    assert before.returncode == 0, before.stdout

    for each in errors:
        (copy / each.path).write_text(each.text)
    after = run([BIN / tool, *arguments], copy)
    assert after.returncode == 1, after.stdout
    assert [each.finding for each in errors if each.finding not in after.stdout] == [], after.stdout


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
import sys
import attnsweep.orchestrator.cli
print(*[name for name in {HEAVY} if name in sys.modules])
print(len(sys.modules))
"""
    started = run([sys.executable, "-c", program], ROOT)
    assert started.returncode == 0, started.stdout
    heavy, n_modules = started.stdout.splitlines()
    assert heavy == ""
    # The number of modules stands for the time of the start, which depends on what else runs on the machine.
    assert int(n_modules) < MOST_MODULES_AT_START


@pytest.mark.slow
def test_the_groups_reach_xdist(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_collection_modifyitems\n")
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    command = [sys.executable, "-m", "pytest", "-v", "-n1", "--dist=loadgroup", "-p", "no:cacheprovider", "test_one.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    # xdist sends tests with the same word after the @ to one process.
    assert f"test_one.py::test_one@{tmp_path}/test_one.py" in done.stdout
