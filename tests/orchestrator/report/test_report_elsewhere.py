"""A report is the same wherever it was made, and names no folder of that machine; sweeps of other users."""

import re
import shutil
from pathlib import Path

import pytest

from attnsweep.orchestrator.report.page import make_report
from tests.orchestrator.report.report_html import read_html
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

HOME = "/home/me/private"
TRACEBACK = f"""Traceback (most recent call last):
  File "{HOME}/.venv/lib/python3.11/site-packages/torch/nn/module.py", line 1, in forward
  File "{HOME}/mine.py", line 7, in loss
FileNotFoundError: [Errno 2] No such file or directory: '{HOME}/data.npy'
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def pages(home: Path) -> tuple[str, str]:
    """The page of a sweep, made where it was trained and elsewhere."""
    command = ["/opt/bin/attnsweep", "run", f"{HOME}/mine.py", "--dir", f"{HOME}/here/sweep", f"--set=corpus={HOME}/c"]
    here, there = home / "here" / "sweep", home / "there" / "with blanks" / "sweep"
    spec = small_sweep("s", trials=2, replicates=2, workload=f"{HOME}/mine.py:Mine", storage=f"sqlite:///{HOME}/s.db")
    failed = trial_rows(1, ["failed", "failed"], error=TRACEBACK, eval_loss=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", command)
        sweep_on_disk(here, spec, trial_rows(0, ["solved", "marginal"]), failed)
    shutil.copytree(here, there)
    texts = []
    for place in (here, there):
        # Only the time of creation may differ.
        text = make_report([place]).text
        texts.append(re.sub(r"Made [-:0-9 ]+ UTC", "", text))
    return texts[0], texts[1]


@pytest.mark.scale
@pytest.mark.slow
def test_a_report_is_the_same_elsewhere(pages: tuple[str, str]) -> None:
    assert pages[0] == pages[1]


@pytest.mark.slow
def test_a_report_names_no_folder_of_the_machine_that_made_it(pages: tuple[str, str], home: Path) -> None:
    for folder in (HOME, str(home), str(Path(__file__).parents[3]), "/opt/bin"):
        assert folder not in pages[0]
    page = read_html(pages[0])
    assert "file:" not in pages[0]
    assert [each for each in page.all("a") if not each.attributes["href"].startswith("#")] == []
    assert 'File ".../mine.py", line 7, in loss' in page.one("details", class_="failure").text
    assert '"workload": ".../mine.py:Mine"' in page.one("pre", class_="spec").text
    assert '"storage": "sqlite:///.../s.db"' in page.one("pre", class_="spec").text
    assert ".../attnsweep run .../mine.py --dir .../sweep --set=corpus=.../c" in page.text
    assert "attnsweep resume sweep" in page.text
