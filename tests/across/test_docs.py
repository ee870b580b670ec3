"""The documents are correct: their examples are sweeps that fit, their settings exist, their blocks run."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from attnsweep.search_spaces.loading import assignments, load_sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.registry import load_workload
from tests.across.documents import DOCUMENTS, ROOT, blocks, invocations


def files(name: str) -> dict[str, str]:
    """The Python files that a reader of a document has written: blocks that begin with `# <name>.py`."""
    texts = [block for page in ("README.md", name) for block in blocks(DOCUMENTS[page], "python")]
    return {file[1]: text for text in texts if (file := re.match(r"# (\w+\.py)\n", text))}


@pytest.fixture(params=DOCUMENTS)
def document(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for file, text in files(request.param).items():
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield request.param
    for file in files(request.param):
        sys.modules.pop(file.removesuffix(".py"), None)


def test_the_sweeps_of_a_document_fit_their_workloads(document: str) -> None:
    for file, text in files(document).items():
        if re.search(r"^def sweep\(", text, re.MULTILINE):
            sweep = load_sweep(file)
            check_sweep(sweep, load_workload(sweep.workload).parameters)


def test_the_settings_of_a_documented_run_fit_its_workload(document: str) -> None:
    for line in invocations(DOCUMENTS[document]):
        if not line.startswith("run "):
            continue
        words = shlex.split(line)[1:]
        settings = [after for word, after in pairwise(words) if word == "--set"]
        # An earlier command of the page writes these files.
        if settings and ".yaml" not in words[0] and ".parquet" not in line:
            sweep = load_sweep(words[0]).fix(assignments(settings))
            if "--trials" in words:
                sweep = sweep.but(trials=int(words[words.index("--trials") + 1]))
            check_sweep(sweep, load_workload(sweep.workload).parameters)


@pytest.mark.ray
@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_block_of_every_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the tutorial trains a GPT-2: pip install 'attnsweep[hf]'")
    command = [sys.executable, str(ROOT / "docs" / "execute.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
