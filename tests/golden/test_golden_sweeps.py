"""Sweeps that an earlier version wrote stay readable and resumable. One folder per version, written by that version.

`finished` ran to its end; `interrupted` was stopped by Ctrl-C while a pack trained, so it has a checkpoint; so was
`own`, whose workload is in a user's file. `expected.json` holds the training_id and outcome of each training, by
TRIAL/REPLICATE, as that version had them in the end, after resuming. `write.py` has written them.
"""

import importlib.metadata
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from attnsweep import Ledger
from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.follow import sync
from tests.orchestrator.commands import command

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "expected.json").exists())


UNFINISHED = [
    (version, name) for version in VERSIONS for name in ("interrupted", "own") if (HERE / version / name).exists()
]
COLUMNS = ("training_id", "outcome", "eval_loss", "environment")


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of one version's sweeps, in the current directory, beside an MLflow database of their own."""
    shutil.copytree(HERE / request.param, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    return tmp_path


def expected(golden: Path, name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads((golden / "expected.json").read_text())[name]
    return found


def stored(path: Path, *columns: str) -> dict[str, list[object]]:
    rows = Ledger(path).trainings().to_pylist()
    return {f"{row['trial']}/{row['replicate']}": [row[name] for name in columns] for row in rows}


def test_an_old_sweep_is_queried(golden: Path) -> None:
    query = "select outcome, count(*) as n from trainings group by 1 order by 1"
    counts = sorted(Counter(outcome for _, outcome in expected(golden, "finished").values()).items())
    printed = command("query", "finished", query, "--format", "csv").out
    assert printed.split() == [
        "outcome,n",
        *(f"{outcome},{n}" for outcome, n in counts),
    ]


@pytest.mark.scale
def test_an_old_sweep_is_reported(golden: Path) -> None:
    directory = SweepDirectory.open(golden / "finished")
    page, pictures = make_report([directory.place])
    assert directory.sweep in page
    assert pictures


def test_an_old_sweep_equals_itself(golden: Path) -> None:
    assert json.loads(command("compare", "finished", "finished", "--json").out)["stuck_rate"]["difference"] == 0


def test_an_old_sweep_passes_the_audit(golden: Path) -> None:
    sync(SweepDirectory.open(golden / "finished"))
    assert command("audit", "finished").code == 0


@pytest.mark.sample("0.1.0-interrupted", "0.2.0-own")
@pytest.mark.sample("0.2.0-own")
@pytest.mark.parametrize(("golden", "name"), UNFINISHED, indirect=["golden"])
def test_an_old_sweep_resumes_only_with_consent(golden: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////dev/null/mlflow.db")
    before = stored(golden / name, *COLUMNS)
    refusals = []
    if SweepDirectory.open(golden / name).provenance["versions"]["attnsweep"] != importlib.metadata.version(
        "attnsweep"
    ):
        refusals = ["expected the library versions and code that the sweep was trained with so far"]
    if name == "own":
        refusals = ["code that you have not run before: own.py, own_names.py"]
    for words in refusals:
        refused = command("resume", name, "--local")
        assert refused.code == 2
        assert words in refused.err
        assert stored(golden / name, *COLUMNS) == before

    trusted = ["--trust"] if name == "own" else []
    assert command("resume", name, "--local", "--accept-drift", *trusted).code == 0
    after = stored(golden / name, *COLUMNS)
    ids = {place: training_id for place, (training_id, _) in expected(golden, name).items()}
    assert {place: after[place] for place in before} == before
    assert {place: row[0] for place, row in after.items()} == ids
