"""The distribution installs one package, whatever the folders are called, whatever names a user's folders have, and
wherever the source comes from.

The folders stand at the top of the repository, and `src/attnsweep` links to them. The tests build from a copy, so that
nothing is left in the checkout."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.across.documents import PAGES

ROOT = Path(__file__).parents[2]
SOURCE = (
    "LICENSE",
    "README.md",
    "orchestrator",
    "pyproject.toml",
    "reproduction",
    "search_spaces",
    "src",
    "workloads",
)
"""A source tree to build from. It also contains everything that must not get into a distribution."""
BESIDES = ("benchmarks", "docs", "infra", "tests")


def run(command: Sequence[str | Path], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    """The archive that setuptools builds from a source tree, without an isolated environment."""
    out.mkdir(exist_ok=True)
    program = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    run([sys.executable, "-W", "ignore", "-c", program, out], source)
    [archive] = out.iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the sdist of the checkout."""
    folder = tmp_path_factory.mktemp("build")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in (*SOURCE, *BESIDES):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, checkout)
    with tarfile.open(build("sdist", checkout, folder / "sdist")) as sdist:
        sdist.extractall(folder / "unpacked", filter="data")
    [source] = (folder / "unpacked").iterdir()
    return build("wheel", source, folder / "wheel")


@pytest.mark.slow
def test_a_wheel_holds_one_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    version = wheel.name.split("-")[1]
    assert {name.split("/")[0] for name in names} == {"attnsweep", f"attnsweep-{version}.dist-info"}


@pytest.mark.slow
def test_a_wheel_holds_every_module_and_what_is_read_at_run_time(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = [path for path in (ROOT / "src" / "attnsweep").iterdir() if path.is_dir() and path.name != "__pycache__"]
    files = {path.name: path for path in (ROOT / "src" / "attnsweep").iterdir() if path.is_file()}
    for folder in folders:
        files |= {f"{folder.name}/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
    wanted = {f"attnsweep/{name}" for name in files if "__pycache__" not in name and not name.startswith("docs/")}
    # `attnsweep docs` prints these.
    wanted |= {f"attnsweep/{path.relative_to(ROOT)}" for path in PAGES}
    assert wanted <= names, sorted(wanted - names)


@pytest.mark.scale
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git checkout")
def test_git_archive_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    run(["git", "-C", ROOT, "archive", "--output", tmp_path / "source.tar", "HEAD"], tmp_path)
    with tarfile.open(tmp_path / "source.tar") as source:
        source.extractall(tmp_path / "source", filter="data")
    archived = build("wheel", tmp_path / "source", tmp_path / "wheel")
    assert zipfile.ZipFile(archived).namelist() == zipfile.ZipFile(wheel).namelist()


@pytest.mark.scale
def test_an_installed_wheel_exposes_one_name_and_runs(wheel: Path, tmp_path: Path) -> None:
    """Runs in a separate environment, which has the dependencies of this one but not the checkout."""
    run([sys.executable, "-m", "venv", tmp_path / "venv"], tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    [site] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    before = {path.name for path in site.iterdir()}
    run([python, "-m", "pip", "install", "--no-index", "--no-deps", wheel], tmp_path)
    new = {path.name for path in site.iterdir()} - before
    assert new == {"attnsweep", f"attnsweep-{wheel.name.split('-')[1]}.dist-info"}
    # A folder named in a .pth file is searched, but .pth files in it, such as this checkout's, are not read.
    [dependencies] = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text(dependencies + "\n")
    where = run([python, "-c", "import attnsweep.orchestrator.cli; print(attnsweep.__file__)"], tmp_path)
    assert where == f"{site}/attnsweep/__init__.py\n"
    attnsweep = tmp_path / "venv" / "bin" / "attnsweep"
    assert "quickstart" in run([attnsweep, "specs"], tmp_path)
    assert "category_pairs" in run([attnsweep, "workloads"], tmp_path)
    assert "shin-fig1" in run([attnsweep, "reproduce"], tmp_path)


FOLDERS = ("orchestrator", "workloads", "search_spaces", "reproduction")
SCRIPT = """
import hashlib
import os

import torch

from attnsweep import Float, Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import defaults

torch.set_num_threads(1)
space = {"init_sigma": Float(1e-3, 1.0, log=True), "n_steps": 30}
sweep = Sweep(name="mine", workload="category_pairs", space=space, trials=1)
workload = load_workload(sweep.workload)
check_sweep(sweep, workload.parameters)
bits = hashlib.sha256()
SETTINGS = (
    {"variant": "positions_only"},
    {"variant": "categories_only"},
)
for values in SETTINGS:
    parameters = defaults(workload, n_categories=5, n_positions=9, n_steps=30, **values)
    pack = Pack(workload, [Training(parameters, seed) for seed in range(3)])
    pack.train_to_end()
    for metric, table in sorted(pack.result().evidence.metrics.items()):
        bits.update(metric.encode() + table.tobytes())
print(bits.hexdigest(), os.environ["MKL_CBWR"])
"""


def _with_folders(path: Path) -> Path:
    for name in FOLDERS:
        (path / name).mkdir(parents=True)
        (path / name / "__init__.py").write_text("raise RuntimeError('the folder of the user was imported')\n")
    return path


@pytest.mark.slow
def test_folders_of_our_names_change_nothing(tmp_path: Path) -> None:
    working, beside = _with_folders(tmp_path / "working"), _with_folders(tmp_path / "beside")
    (beside / "mine.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    done = subprocess.run(
        [sys.executable, beside / "mine.py"],
        cwd=working,
        env=environment | {"PYTHONPATH": str(working)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(SCRIPT, "mine.py", "exec"), {"__name__": "__main__"})
    assert done.stdout == printed.getvalue()
    assert done.stdout.split()[1] == "AVX2,STRICT"
