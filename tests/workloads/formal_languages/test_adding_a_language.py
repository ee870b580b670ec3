"""The steps of docs/languages.md on a copy of the package: files written, lines added, check run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "languages.md").read_text()
LEARN = """
import numpy as np
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack

settings = {"language": "majority", "learning_rate": 1e-2, "batch_size": 16, "n_steps": 200, "eval_batch_size": 200}
lengths = (5, 9)
trainings = [Training(defaults(workload, train_length=n, **settings), seed) for seed, n in enumerate(lengths)]
pack = Pack(workload, trainings)
pack.train_to_end()
accuracy = pack.result().last("accuracy")
assert (accuracy > 0.95).all(), accuracy
assert pack.result().heads[-1].heads.role.tolist() == [[["none"]] * 2] * len(pack.result().heads[-1].lanes)
"""


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def followed(tmp_path: Path) -> Path:
    """A copy of the package after the page's steps."""
    shutil.copytree(ROOT / "workloads", tmp_path / "workloads", ignore=shutil.ignore_patterns("__pycache__"))
    # As in src/: the installed package consists of links to the folders.
    package = tmp_path / "attnsweep"
    package.mkdir()
    for name in ("__init__.py", "__init__.pyi"):
        shutil.copy(ROOT / "src" / "attnsweep" / name, package)
    (package / "workloads").symlink_to(tmp_path / "workloads")
    for block in _blocks("python"):
        name, _, text = block.partition("\n")
        (tmp_path / name.removeprefix("# ")).write_text(text)
    registry = tmp_path / "workloads" / "formal_languages" / "languages.py"
    for block in _blocks("diff"):
        before, added = (line[1:] for line in block.splitlines())
        assert registry.read_text().count(f"{before}\n") == 1
        registry.write_text(registry.read_text().replace(f"{before}\n", f"{before}\n{added}\n"))
    return tmp_path


@pytest.mark.scale
def test_what_the_page_says_adds_a_language_that_trains(followed: Path) -> None:
    check = followed / "check_majority.py"
    check.write_text(check.read_text() + LEARN)
    environment = {**os.environ, "PYTHONPATH": str(followed), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, check.name], cwd=followed, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
