"""A report names no folder of the machine that made it."""

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
def page(home: Path) -> str:
    command = ["/opt/bin/attnsweep", "run", f"{HOME}/mine.py", "--dir", f"{HOME}/here/sweep", f"--set=corpus={HOME}/c"]
    spec = small_sweep("s", trials=2, replicates=2, workload=f"{HOME}/mine.py:Mine", storage=f"sqlite:///{HOME}/s.db")
    failed = trial_rows(1, ["failed", "failed"], error=TRACEBACK, eval_loss=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", command)
        sweep_on_disk(home / "here" / "sweep", spec, trial_rows(0, ["solved", "marginal"]), failed)
    return make_report([home / "here" / "sweep"]).text


@pytest.mark.slow
def test_a_report_names_no_folder_of_the_machine_that_made_it(page: str, home: Path) -> None:
    for folder in (HOME, str(home), str(Path(__file__).parents[3]), "/opt/bin"):
        assert folder not in page
    read = read_html(page)
    assert "file:" not in page
    assert [each for each in read.all("a") if not each.attributes["href"].startswith("#")] == []
    assert 'File ".../mine.py", line 7, in loss' in read.one("details", class_="failure").text
    assert '"workload": ".../mine.py:Mine"' in read.one("pre", class_="spec").text
    assert '"storage": "sqlite:///.../s.db"' in read.one("pre", class_="spec").text
    assert ".../attnsweep run .../mine.py --dir .../sweep --set=corpus=.../c" in read.text
    assert "attnsweep resume sweep" in read.text
