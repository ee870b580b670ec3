"""The distribution installs one package, whatever the folders are called, whatever names a user's folders have, and
wherever the source comes from.

The folders stand at the top of the repository, and `src/attnsweep` links to them. The tests build from a copy, so that
nothing is left in the checkout."""

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
SOURCE = ("LICENSE", "README.md", "orchestrator", "pyproject.toml", "reproduction", "search_spaces", "src", "workloads")
# What must not get into a distribution.
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
