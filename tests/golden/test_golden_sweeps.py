"""Sweeps that an earlier version wrote stay readable and resumable. One folder per version, written by that version.

`finished` ran to its end; `interrupted` was stopped by Ctrl-C while a pack trained, so it has a checkpoint.
`expected.json` holds the training_id and outcome of each training, by TRIAL/REPLICATE, as that version had them in the
end: `interrupted` after it had been resumed by that version.
"""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from attnsweep import Ledger
from attnsweep.orchestrator.cli import main

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "expected.json").exists())


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of one version's sweeps, in the current directory, beside an MLflow database of their own."""
    for name in ("finished", "interrupted"):
        shutil.copytree(HERE / request.param / name, tmp_path / name)
    shutil.copy(HERE / request.param / "expected.json", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    return tmp_path


def attnsweep(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["attnsweep", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def expected(golden: Path, name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads((golden / "expected.json").read_text())[name]
    return found


def stored(path: Path, *columns: str) -> dict[str, list[object]]:
    rows = Ledger(path).trainings().to_pylist()
    return {f"{row['trial']}/{row['replicate']}": [row[name] for name in columns] for row in rows}


def test_an_old_sweep_is_queried(
    golden: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "select outcome, count(*) as n from trainings group by 1 order by 1"
    assert attnsweep(monkeypatch, "query", "finished", query, "--format", "csv") == 0
    counts = sorted(Counter(outcome for _, outcome in expected(golden, "finished").values()).items())
    assert capsys.readouterr().out.split() == ["outcome,n", *(f"{outcome},{n}" for outcome, n in counts)]


@pytest.mark.slow
def test_an_old_sweep_is_reported(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attnsweep(monkeypatch, "report", "finished", "--out", "page.html") == 0
    assert json.loads((golden / "finished" / "sweep.json").read_text())["sweep"] in (golden / "page.html").read_text()


def test_an_old_sweep_equals_itself(
    golden: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert attnsweep(monkeypatch, "compare", "finished", "finished", "--json") == 0
    assert json.loads(capsys.readouterr().out)["stuck_rate"]["difference"] == 0


@pytest.mark.slow
def test_an_old_sweep_passes_the_audit(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attnsweep(monkeypatch, "mlflow-sync", "finished") == 0
    assert attnsweep(monkeypatch, "audit", "finished") == 0


@pytest.mark.slow
def test_an_old_sweep_resumes_only_with_consent(
    golden: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stored(golden / "interrupted", "training_id", "outcome", "eval_loss", "environment")
    assert attnsweep(monkeypatch, "resume", "interrupted", "--local") == 2
    assert "expected the versions and code that the sweep was trained with so far" in capsys.readouterr().err
    assert stored(golden / "interrupted", "training_id", "outcome", "eval_loss", "environment") == before

    assert attnsweep(monkeypatch, "resume", "interrupted", "--local", "--accept-drift") == 0
    after = stored(golden / "interrupted", "training_id", "outcome", "eval_loss", "environment")
    assert {place: after[place] for place in before} == before
    ids = {place: training_id for place, (training_id, _) in expected(golden, "interrupted").items()}
    assert {place: row[0] for place, row in after.items()} == ids
